"""Programs for tests of the guard and the supervisor, and whether they still run."""

import sys
from pathlib import Path

# Starts a child in a session of its own, as an engine's core may be; both ignore SIGTERM and write down their ids.
STUBBORN = """\
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder, depth = sys.argv[1], int(sys.argv[2])
if depth:
    subprocess.Popen([sys.executable, "-c", os.environ["PROGRAM"], folder, str(depth - 1)], start_new_session=True)
open(f"{folder}/{os.getpid()}.pid", "w").close()
time.sleep(600)
"""


def stubborn(folder: Path, depth: int = 2) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a program with `depth` generations below it; each writes `<pid>.pid`."""
    return [sys.executable, "-c", STUBBORN, str(folder), str(depth)], {"PROGRAM": STUBBORN}


def recorded_pids(folder: Path) -> list[int]:
    return [int(file.stem) for file in folder.glob("*.pid")]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
