"""`manage.py up`, as `make run` starts it: everything comes up, everything ends, nothing is lost."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatsite.management.commands.demo import read_env
from chatsite.operations.guard import descendants
from tests.chatsite.processes import alive
from tests.waiting import wait_until_sync

ROOT = Path(__file__).parent.parent.parent
# Nothing answers at that address: the site has to come up all the same.
MODELS = """\
[[models]]
name = "away"
context_length = 4096
replicas = ["http://127.0.0.1:9"]
"""
START_SECONDS = 90  # of a machine that does much else at the same time
END_SECONDS = 10


class RunningSite:
    """One `manage.py up` with a state folder and a port of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.state = folder / "state"
        self.log = folder / "output.log"
        self.port = free_port()
        models = folder / "models.toml"
        models.write_text(MODELS)
        env = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
        env.pop("CELERY_BROKER_URL", None)
        env |= {"CHATSITE_STATE": str(self.state), "CHATSITE_MODELS": str(models), "PORT": str(self.port)}
        with self.log.open("w") as output:
            command = [sys.executable, "manage.py", "up", *options]
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT)
        self.family: set[int] = set()

    def wait_until_up(self) -> "RunningSite":
        wait_until_sync(self._is_up, START_SECONDS, f"the site did not come up; see {self.log}")
        self.family = {self.process.pid, *descendants(self.process.pid)}
        return self

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "The site is up" in self.log.read_text()

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def pid_of(self, argument: str) -> int:
        """The process of the site, not its guard, that has this argument."""
        for pid in descendants(self.process.pid):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if argument in arguments and "--" not in arguments:
                return pid
        raise AssertionError(f"no process with the argument {argument}:\n{self.log.read_text()}")

    def end(self, number: signal.Signals) -> float:
        """Sends the signal; returns after how many seconds no process of the site was left."""
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(END_SECONDS * 2)
        wait_until_sync(lambda: not any(map(alive, self.family)), END_SECONDS * 2)
        return time.monotonic() - started


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture
def site(folder: Path) -> Iterator[RunningSite]:
    running = RunningSite(folder).wait_until_up()
    yield running
    if running.process.poll() is None:
        running.end(signal.SIGTERM)


def test_it_comes_up_ends_and_comes_up_with_the_same_data(site: RunningSite, folder: Path) -> None:
    assert site.status("/healthz") == 200
    assert site.status("/readyz") == 503  # no engine answers
    told = read_env(site.state / "demo.env")
    assert told["CHATSITE_URL"] == f"http://127.0.0.1:{site.port}"
    for secret in ("demo.env", "secret_key"):
        assert stat.S_IMODE((site.state / secret).stat().st_mode) == 0o600
    assert told["CHATSITE_PASSWORD"] not in site.log.read_text()

    web = site.pid_of("daphne")
    os.kill(web, signal.SIGKILL)
    wait_until_sync(lambda: "web      | ended with status 137" in site.log.read_text(), 20)

    assert site.end(signal.SIGTERM) < END_SECONDS
    assert site.process.returncode == 0
    assert "up       | stopped" in site.log.read_text()

    again = RunningSite(folder).wait_until_up()
    assert read_env(again.state / "demo.env") == {**told, "CHATSITE_URL": f"http://127.0.0.1:{again.port}"}
    assert again.end(signal.SIGINT) < END_SECONDS


def test_a_killed_supervisor_leaves_no_orphan_and_the_next_start_works(site: RunningSite, folder: Path) -> None:
    assert len(site.family) > 10
    assert site.end(signal.SIGKILL) < END_SECONDS
    again = RunningSite(folder).wait_until_up()
    assert again.status("/healthz") == 200
    second = RunningSite(folder)
    assert second.process.wait(START_SECONDS) == 1
    assert f"runs already, as process {again.process.pid}" in second.log.read_text()
    again.end(signal.SIGTERM)


def test_it_ends_with_the_make_that_started_it(folder: Path) -> None:
    """SIGKILL to `make` itself: what it started notices that its parent is gone."""
    marker = folder / "child"
    code = f"""\
import subprocess, sys
from tests.acceptance.test_up import RunningSite
from pathlib import Path
site = RunningSite(Path({str(folder)!r}), "--follow-parent")
Path({str(marker)!r}).write_text(str(site.process.pid))
site.process.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    log = folder / "output.log"
    wait_until_sync(lambda: log.exists() and "The site is up" in log.read_text(), START_SECONDS)
    child = int(marker.read_text())
    family = {child, *descendants(child)}
    parent.kill()
    parent.wait()
    wait_until_sync(lambda: not any(map(alive, family)), END_SECONDS + 2)
