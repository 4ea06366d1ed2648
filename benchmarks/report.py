"""Where and when a figure was measured, and where it is kept."""

import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from benchmarks.house import ROOT


def machine() -> str:
    return f"{psutil.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def write(name: str, report: Mapping[str, Any], text: str) -> None:
    """The raw figures, and the page about them, into docs/benchmarks."""
    folder = ROOT / "docs" / "benchmarks"
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / f"{name}.md").write_text(text)
