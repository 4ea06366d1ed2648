"""`manage.py up`, as `make run` starts it: everything comes up, everything ends, nothing is lost."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
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
    """One `manage.py up` with a state folder and a port of its own; `launcher` starts it, as `make` does."""

    def __init__(self, folder: Path, *options: str, launcher: Sequence[str] = ()) -> None:
        self.state = folder / "state"
        self.log = folder / "output.log"
        self.port = free_port()
        models = folder / "models.toml"
        models.write_text(MODELS)
        env = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
        env.pop("CELERY_BROKER_URL", None)
        env |= {"CHATSITE_STATE": str(self.state), "CHATSITE_MODELS": str(models), "PORT": str(self.port)}
        with self.log.open("w") as output:
            command = [*launcher, sys.executable, "manage.py", "up", *options]
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
def folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user can reach."""
    with tempfile.TemporaryDirectory(prefix="chatsite-up-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., RunningSite]]:
    """Starts the site, each time with the same state."""
    started: list[RunningSite] = []

    def start_site(*options: str, launcher: Sequence[str] = ()) -> RunningSite:
        started.append(RunningSite(folder, *options, launcher=launcher))
        return started[-1]

    yield start_site
    for site in started:
        if site.process.poll() is None:
            site.end(signal.SIGTERM)


def test_it_starts_ends_is_killed_and_loses_nothing(start: Callable[..., RunningSite]) -> None:
    first = start().wait_until_up()
    assert first.status("/healthz") == 200
    assert first.status("/readyz") == 503  # no engine answers
    told = read_env(first.state / "demo.env")
    assert told["CHATSITE_URL"] == f"http://127.0.0.1:{first.port}"
    for secret in ("demo.env", "secret_key"):
        assert stat.S_IMODE((first.state / secret).stat().st_mode) == 0o600
    assert told["CHATSITE_PASSWORD"] not in first.log.read_text()
    os.kill(first.pid_of("daphne"), signal.SIGKILL)
    wait_until_sync(lambda: "web      | ended with status 137" in first.log.read_text(), 20)
    assert first.end(signal.SIGTERM) < END_SECONDS
    assert first.process.returncode == 0
    assert "up       | stopped" in first.log.read_text()

    second = start().wait_until_up()
    assert read_env(second.state / "demo.env") == {**told, "CHATSITE_URL": f"http://127.0.0.1:{second.port}"}
    log = second.log.read_text()
    another = start()
    assert another.process.wait(START_SECONDS) == 1
    assert f"runs already, as process {second.process.pid}" in another.log.read_text(), log
    assert len(second.family) > 10
    assert second.end(signal.SIGKILL) < END_SECONDS

    third = start("--follow-parent", launcher=["sh", "-c", '"$@"; exit $?', "sh"]).wait_until_up()
    assert third.status("/healthz") == 200
    assert third.end(signal.SIGKILL) < END_SECONDS + 2  # it was the launcher that was killed
