"""Where and when a figure was measured."""

import platform
import subprocess
from datetime import UTC, datetime

import psutil

from benchmarks.house import ROOT


def machine() -> str:
    return f"{psutil.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
