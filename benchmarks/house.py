"""The platform in front of a fake engine without think time, each in processes of its own, on loopback."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

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
        return {"web": _cpu(self.web), "runner": _cpu(self.runner)}

    def set_engine(self, **options: Any) -> None:
        """Changes how the fake engine behaves."""
        body = json.dumps(options).encode()
        urllib.request.urlopen(f"{self.engine}/fake/options", body, timeout=5).close()


@contextmanager
def house(server: str) -> Iterator[House]:
    with (
        fake_engine() as (engine, _),
        installation(models_toml(engine), {**MANY, "ASGI_SERVER": server}) as site,
    ):
        yield House(site, engine, site.find(f"-m {server}")[0], site.find("runinference")[0])


def _cpu(root: psutil.Process) -> float:
    times = [process.cpu_times() for process in [root, *root.children(recursive=True)]]
    return sum(time.user + time.system for time in times)
