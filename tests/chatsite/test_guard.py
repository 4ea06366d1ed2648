"""The guard: nothing of a command outlives the pipe that holds it, or the guard itself."""

import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatsite.operations.guard import descendants
from chatsite.operations.processes import Command, GuardedProcess
from tests.chatsite.processes import alive, recorded_pids, stubborn
from tests.waiting import wait_until_sync

GENERATIONS = 3


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


@pytest.fixture
def family(tmp_path: Path, log: Path) -> Iterator[GuardedProcess]:
    """A command, its child and its grandchild, each in its own session and deaf to SIGTERM."""
    argv, env = stubborn(tmp_path, GENERATIONS - 1)
    process = GuardedProcess(Command(argv, env), log)
    wait_until_sync(lambda: len(recorded_pids(tmp_path)) == GENERATIONS)
    yield process
    process.end()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_the_status_of_the_command_is_the_guards(log: Path) -> None:
    process = GuardedProcess(Command(python("print('hello'); raise SystemExit(7)")), log)
    assert process.process.wait(10) == 7
    assert log.read_text() == "hello\n"


def test_a_command_ended_by_a_signal(log: Path) -> None:
    process = GuardedProcess(Command(python("import os; os.kill(os.getpid(), 9)")), log)
    assert process.process.wait(10) == 128 + signal.SIGKILL


def test_a_command_that_does_not_exist(log: Path) -> None:
    process = GuardedProcess(Command(["/does/not/exist"]), log)
    assert process.process.wait(10) == 127
    assert "cannot run /does/not/exist" in log.read_text()


def test_a_closed_pipe_ends_every_generation(family: GuardedProcess, tmp_path: Path) -> None:
    started = time.monotonic()
    family.end()
    assert time.monotonic() - started < 2
    assert not [pid for pid in recorded_pids(tmp_path) if alive(pid)]


def test_a_command_that_ends_leaves_no_orphan(tmp_path: Path, log: Path) -> None:
    argv, env = stubborn(tmp_path, 0)
    code = f"import subprocess; subprocess.Popen({argv!r}, start_new_session=True)"
    process = GuardedProcess(Command(python(code), env), log)
    assert process.process.wait(10) == 0
    assert not [pid for pid in recorded_pids(tmp_path) if alive(pid)]


def test_a_killed_command_takes_its_descendants_with_it(family: GuardedProcess, tmp_path: Path) -> None:
    os.kill(eldest(tmp_path), signal.SIGKILL)
    assert family.process.wait(10) == 128 + signal.SIGKILL
    assert not [pid for pid in recorded_pids(tmp_path) if alive(pid)]


def test_a_killed_guard_takes_its_command_with_it(tmp_path: Path, log: Path) -> None:
    argv, env = stubborn(tmp_path, 0)
    process = GuardedProcess(Command(argv, env), log)
    (pid,) = wait_until_sync(lambda: recorded_pids(tmp_path))
    process.process.kill()
    wait_until_sync(lambda: not alive(pid))
    process.end()


def eldest(folder: Path) -> int:
    """The pid of the command that started the others."""
    return max(recorded_pids(folder), key=lambda pid: len(descendants(pid)))


def test_a_pipe_closed_as_the_command_ends_is_not_waited_for(tmp_path: Path, log: Path) -> None:
    for _ in range(10):  # which of the two the guard sees first varies
        (tmp_path / "ready").unlink(missing_ok=True)
        code = f"import pathlib, time; pathlib.Path({str(tmp_path / 'ready')!r}).touch(); time.sleep(600)"
        process = GuardedProcess(Command(python(code), grace=5), log)
        wait_until_sync((tmp_path / "ready").exists)
        (pid,) = descendants(process.process.pid)
        started = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        process.end()
        assert time.monotonic() - started < 4


def test_stop_sends_the_stop_signal_and_waits_for_the_command(log: Path) -> None:
    code = """\
        import signal, sys, time
        signal.signal(signal.SIGINT, lambda *_: sys.exit(print("handing over") or 5))
        print("ready", flush=True)
        time.sleep(600)
        """
    process = GuardedProcess(Command(python(code), stop_signal=signal.SIGINT), log)
    wait_until_sync(lambda: "ready" in log.read_text())
    process.ask_to_stop()
    assert process.process.wait(10) == 5
    assert "handing over" in log.read_text()
    process.end()


def test_a_closed_pipe_gives_a_command_with_grace_time_to_stop(tmp_path: Path, log: Path) -> None:
    code = """\
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(print("saved"))))
        print("ready", flush=True)
        time.sleep(600)
        """
    process = GuardedProcess(Command(python(code), grace=5, remove=tmp_path / "scratch"), log)
    (tmp_path / "scratch").mkdir()
    wait_until_sync(lambda: "ready" in log.read_text())
    process.end()
    assert "saved" in log.read_text()
    assert not (tmp_path / "scratch").exists()
