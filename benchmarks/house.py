"""The platform in front of a fake engine without think time, each in processes of its own, on loopback."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
MODEL = "smollm2-135m"
MODEL_PATH = ROOT / "var" / "models" / MODEL
START_SECONDS = 90.0
MODELS = """
[[models]]
name = "{name}"
title = "Benchmark"
context_length = 4096
path = "{path}"
replicas = ["{url}"]
price = {{input = "0.10", cached = "0.01", output = "0.40"}}
"""


@dataclass(frozen=True)
class House:
    """Where everything is. `web` and `runner` are process ids, with their children."""

    port: int
    engine_port: int
    key: str
    web: int
    runner: int

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, *, engine: bool = False) -> Any:
        port = self.engine_port if engine else self.port
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            json.dumps(body).encode() if body is not None else None,
            {"content-type": "application/json", "authorization": f"Bearer {self.key}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        return {"web": tree_cpu(self.web), "runner": tree_cpu(self.runner)}


def tree_cpu(pid: int) -> float:
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in [root, *root.children(recursive=True)]]
    return sum(time.user + time.system for time in times)


@contextmanager
def house(environment: dict[str, str] | None = None) -> Iterator[House]:
    """Starts it all in a temporary folder, and ends it."""
    folder = Path(tempfile.mkdtemp(prefix="chatsite-bench-"))
    folder.chmod(0o755)
    port, engine_port = _free_ports(2)
    engine = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.engine", "--port", str(engine_port), "--model-path", str(MODEL_PATH)],
        cwd=ROOT,
    )
    models = folder / "models.toml"
    models.write_text(MODELS.format(name=MODEL, path=MODEL_PATH, url=f"http://127.0.0.1:{engine_port}"))
    variables = {
        **os.environ,
        "CHATSITE_STATE": str(folder / "var"),
        "CHATSITE_MODELS": str(models),
        "CHATSITE_BACKGROUND": "off",
        "PORT": str(port),
        "REPLICA_SLOTS": "2048",
        "RUNNER_STREAMS": "2048",
        "LOG_LEVEL": "WARNING",
        **(environment or {}),
    }
    log = (folder / "up.log").open("wb")
    site = subprocess.Popen([sys.executable, "manage.py", "up"], cwd=ROOT, env=variables, stdout=log, stderr=log)
    try:
        _wait_ready(port, site, folder)
        demo = dict(line.split("=", 1) for line in (folder / "var" / "demo.env").read_text().splitlines() if line)
        yield House(
            port,
            engine_port,
            demo["CHATSITE_API_KEY"],
            web=_find(site.pid, variables.get("ASGI_SERVER", "daphne")),
            runner=_find(site.pid, "runinference"),
        )
    finally:
        for process in (site, engine):
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(port: int, site: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and site.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit("The site did not become ready:\n" + (folder / "up.log").read_text()[-4000:])


def _find(parent: int, word: str) -> int:
    """The service itself, below its guard."""
    found = [p for p in psutil.Process(parent).children(recursive=True) if word in " ".join(p.cmdline())]
    return found[-1].pid


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
