"""Runs one command, and ends it with all its descendants when the pipe that the supervisor holds is closed.

The kernel closes that pipe when the supervisor dies, however it dies, so nothing outlives it. The parent-death signal
alone would not do: it follows the thread that spawned, misses grandchildren (vLLM's core survived it) and exists only
on Linux.

This file is a program of its own, run by its path with `python -I -S`: only the standard library, quick to start.
`chatsite.operations.processes` writes its command line. Protocol on the pipe: a byte `s` asks the command to stop with
its stop signal; end of file ends everything. The guard exits with the command's status, or 128 + the signal that ended
it.
"""

import argparse
import ctypes
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"
KILL_SECONDS = 5.0
STOP = b"s"


class Guard:
    """One command and what descends from it."""

    def __init__(self, command: list[str], control: int, stop_signal: int, grace: float, user: str | None) -> None:
        self.control = control
        self.stop_signal = stop_signal
        self.grace = grace
        self.stopping = False
        self.status: int | None = None
        os.set_inheritable(control, False)
        self.wake = _wake_on_signals()
        _adopt_orphans()
        identity: dict[str, Any] = {"user": user, "group": _group_of(user), "extra_groups": []} if user else {}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent if LINUX else None,
            **identity,
        )

    def run(self) -> int:
        """Waits for the command's end or the pipe's, leaves nothing behind, and returns the command's exit status."""
        while self.status is None:
            ready, _, _ = select.select([self.control, self.wake], [], [])
            if self.wake in ready:
                self._handle_signals()
            if self.control in ready and self.status is None:
                if os.read(self.control, 16):
                    self._stop()
                else:
                    self._end()
        self._kill_all()
        return self.status if self.status >= 0 else 128 - self.status

    def _handle_signals(self) -> None:
        received = os.read(self.wake, 64)
        self._reap()
        if any(number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) for number in received):
            self._stop()

    def _stop(self) -> None:
        self.stopping = True
        if self.status is None:  # not Popen.send_signal, which collects an ended process behind our back
            _signal(os.kill, self.process.pid, self.stop_signal)

    def _end(self) -> None:
        """The supervisor is gone or out of patience. Only what has not been asked yet gets its time to stop."""
        if self.grace and not self.stopping:
            self._stop()
            deadline = time.monotonic() + self.grace
            while self.status is None and time.monotonic() < deadline:
                time.sleep(0.02)
                self._reap()
        self._kill_all()

    def _kill_all(self) -> None:
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            targets = descendants(os.getpid())
            for pid in targets:
                _signal(os.kill, pid, signal.SIGKILL)
            _signal(os.killpg, self.process.pid, signal.SIGKILL)
            self._reap()
            if not targets and self.status is not None:
                return
            time.sleep(0.01)
        self.status = self.status if self.status is not None else -signal.SIGKILL

    def _reap(self) -> None:
        """Collects every ended child: the command, and orphans that were adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.process.pid:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)


def descendants(root: int) -> list[int]:
    """Process ids of the living descendants of `root`, whatever their session or process group."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _processes() -> list[tuple[int, int]]:
    """(pid, parent's pid) of every process but zombies."""
    if LINUX:
        return [entry for place in Path("/proc").glob("[0-9]*") if (entry := _read_stat(place)) is not None]
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True) as lister:
        rows = [line.split() for line in lister.communicate()[0].splitlines()]
    return [(int(pid), int(parent)) for pid, parent, state in rows if state[0] != "Z" and int(pid) != lister.pid]


def _read_stat(place: Path) -> tuple[int, int] | None:
    try:
        text = (place / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended meanwhile
        return None
    state, parent = text.rpartition(")")[2].split()[:2]  # the command's name, in brackets, may hold anything
    return None if state in "ZX" else (int(place.name), int(parent))


def _signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return


def _adopt_orphans() -> None:
    """A grandchild whose parent dies becomes ours rather than init's, so that it is found and ended."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """Between fork and exec: should the guard itself be killed, its command goes too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wake_on_signals() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _group_of(user: str | None) -> int | None:
    return pwd.getpwnam(user).pw_gid if user else None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True, help="read end of the supervisor's pipe")
    parser.add_argument("--stop-signal", type=int, default=int(signal.SIGTERM))
    parser.add_argument("--grace", type=float, default=0.0, help="seconds to stop in when the pipe closes")
    parser.add_argument("--user", help="run the command as this user")
    parser.add_argument("--remove", type=Path, help="a folder to delete at the end")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        return Guard(options.command, options.control, options.stop_signal, options.grace, options.user).run()
    except OSError as error:
        sys.stderr.write(f"cannot run {options.command[0]}: {error}\n")
        return 127
    finally:
        if options.remove:
            shutil.rmtree(options.remove, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
