"""The supervisor: restarts, order of the end, and nothing left when it is killed."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chatsite.operations import supervisor as supervisor_module
from chatsite.operations.output import Output
from chatsite.operations.processes import Command
from chatsite.operations.supervisor import Service, Supervisor
from tests.chatsite.processes import alive, recorded_pids, stubborn
from tests.waiting import wait_until, wait_until_sync

ROOT = Path(__file__).parent.parent.parent


class Screen(io.StringIO):
    """What the supervisor has written."""

    def lines(self, name: str) -> list[str]:
        prefixed = (line.partition(" | ") for line in self.getvalue().splitlines())
        return [text for label, _, text in prefixed if label.strip() == name]


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest_asyncio.fixture
async def supervisor(screen: Screen) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(Output(screen))
    yield supervisor
    await supervisor.stop()


def service(name: str, code: str, phase: int = 0, stop_seconds: float = 5.0) -> Service:
    return Service(name, Command([sys.executable, "-uc", textwrap.dedent(code)]), phase, stop_seconds)


def obedient(name: str, phase: int) -> Service:
    """Says `ready`, and `bye` when it is asked to stop."""
    code = """\
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), sys.exit(print("bye"))))
        print("ready")
        time.sleep(600)
        """
    return service(name, code, phase)


async def test_output_is_prefixed_line_by_line(supervisor: Supervisor, screen: Screen) -> None:
    code = r"import sys; print('one\ntwo'); sys.stderr.write('a progress bar\rthree'); sys.exit(3)"
    assert await supervisor.run("setup", Command([sys.executable, "-uc", code])) == 3
    await wait_until(lambda: screen.lines("setup") == ["one", "two", "a progress bar", "three"])


async def test_a_service_that_ends_is_started_again_ever_more_slowly(
    supervisor: Supervisor, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(supervisor_module, "LONGEST_DELAY", 0.04)
    supervisor.start(service("worker", "print('here'); raise SystemExit(4)"))
    await wait_until(lambda: screen.lines("worker").count("here") >= 5, within=10)
    ends = [line for line in screen.lines("worker") if line != "here"][:4]
    assert ends == [f"ended with status 4, starts again in {delay} s" for delay in ("0.01", "0.02", "0.04", "0.04")]


async def test_services_end_by_phase(supervisor: Supervisor, screen: Screen) -> None:
    for name, phase in (("store", 3), ("web", 0), ("runner", 1), ("worker", 1)):
        supervisor.start(obedient(name, phase))
    for name in ("store", "web", "runner", "worker"):
        await wait_until(lambda name=name: screen.lines(name) == ["ready"])
    started = time.monotonic()
    await supervisor.stop()
    assert 0.6 <= time.monotonic() - started < 3
    await wait_until(lambda: screen.lines("store") == ["ready", "bye"])
    ends = [line.split(" ")[0] for line in screen.getvalue().splitlines() if line.endswith("bye")]
    assert [ends[0], set(ends[1:3]), ends[3]] == ["web", {"runner", "worker"}, "store"]


async def test_what_does_not_stop_in_time_is_killed_with_its_descendants(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    argv, env = stubborn(tmp_path)
    supervisor.start(Service("engine", Command(argv, env), stop_seconds=0.3))
    await wait_until(lambda: len(recorded_pids(tmp_path)) == 3)
    started = time.monotonic()
    await supervisor.stop()
    assert 0.3 <= time.monotonic() - started < 2
    assert not [pid for pid in recorded_pids(tmp_path) if alive(pid)]


async def test_in_a_hurry_nothing_is_waited_for(supervisor: Supervisor, tmp_path: Path) -> None:
    argv, env = stubborn(tmp_path, 0)
    supervisor.start(Service("engine", Command(argv, env), stop_seconds=60))
    await wait_until(lambda: recorded_pids(tmp_path))
    ending = asyncio.create_task(supervisor.stop())
    supervisor.hurry.set()
    await asyncio.wait_for(ending, 5)
    assert not [pid for pid in recorded_pids(tmp_path) if alive(pid)]


async def test_a_service_that_cannot_be_started_is_tried_again(
    supervisor: Supervisor, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY", 0.01)
    supervisor.start(Service("web", Command(["/does/not/exist"])))
    await wait_until(lambda: sum("cannot run" in line for line in screen.lines("web")) >= 2)


def test_a_killed_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    argv, env = stubborn(tmp_path)
    code = f"""\
        import asyncio
        from chatsite.operations.output import Output
        from chatsite.operations.processes import Command
        from chatsite.operations.supervisor import Service, Supervisor

        async def main():
            supervisor = Supervisor(Output())
            for name in ("engine", "web"):
                supervisor.start(Service(name, Command({argv!r}, {env!r})))
            await asyncio.sleep(600)

        asyncio.run(main())
        """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT) as process:
        wait_until_sync(lambda: len(recorded_pids(tmp_path)) == 6, within=20)
        os.kill(process.pid, signal.SIGKILL)
        wait_until_sync(lambda: not [pid for pid in recorded_pids(tmp_path) if alive(pid)])
