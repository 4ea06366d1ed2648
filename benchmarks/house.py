"""The platform in front of a fake engine without think time, each in processes of its own, on loopback."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from tests.acceptance.installation import MODEL, ROOT, Installation, fake_engine, installation, models_toml

__all__ = ["MODEL", "ROOT", "House", "house"]
MANY = {"REPLICA_SLOTS": "2048", "RUNNER_STREAMS": "2048", "LOG_LEVEL": "WARNING"}


@dataclass(frozen=True)
class House:
    """`web` and `runner` are the services' processes."""

    site: Installation
    engine: str
    web: psutil.Process
    runner: psutil.Process

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        return {"web": tree_cpu(self.web), "runner": tree_cpu(self.runner)}

    def execute(self, statement: str, *parameters: Any) -> None:
        """Changes the site's database."""
        url = self.runner.environ()["DATABASE_URL"]
        with psycopg.connect(url) as connection:
            connection.execute(statement, parameters)

    def engine_state(self) -> dict[str, Any]:
        """The fake engine's counters."""
        with urllib.request.urlopen(f"{self.engine}/fake/state", timeout=5) as answer:
            return dict(json.load(answer))

    def set_engine(self, **options: Any) -> None:
        """Changes how the fake engine behaves."""
        body = json.dumps(options).encode()
        urllib.request.urlopen(f"{self.engine}/fake/options", body, timeout=5).close()


@contextmanager
def house(server: str) -> Iterator[House]:
    with (
        fake_engine(max_num_seqs=4096) as (engine, _),
        installation(models_toml(engine), {**MANY, "ASGI_SERVER": server}) as site,
    ):
        yield House(site, engine, site.find(server)[0], site.find("runinference")[0])


def tree_cpu(root: psutil.Process) -> float:
    """CPU seconds of a process and its children so far."""
    times = [process.cpu_times() for process in [root, *root.children(recursive=True)]]
    return sum(time.user + time.system for time in times)
