"""The whole site as `make run` starts it: `manage.py up` in a folder of its own, its processes, its API."""

import json
import os
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
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import psycopg

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m"
MODEL_PATH = ROOT / "var" / "models" / MODEL
TUNES = """INSERT INTO inference_schedulertuning (id, "values", changed_at) VALUES (1, '%s', now())
    ON CONFLICT (id) DO UPDATE SET "values" = excluded."values" """
TURNS_NOBODY_AWAY = TUNES % '{"prediction": {"min_samples": 100000}}'


@dataclass
class Installation:
    port: int
    folder: Path
    process: subprocess.Popen[bytes]
    demo: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.demo["CHATSITE_API_KEY"]

    def call(self, method: str, path: str, body: Any = None, *, timeout: float = 60) -> Any:
        """The JSON answer. Raises HTTPError."""
        with self._open(method, path, body, timeout) as answer:
            return json.loads(answer.read() or b"null")

    def events(self, method: str, path: str, body: Any = None, *, after: str = "") -> Iterator[dict[str, Any]]:
        """Events of a stream, each with its cursor as `id`."""
        with self._open(method, path, body, 60, {"last-event-id": after} if after else {}) as answer:
            cursor = None
            for line in answer:
                if line.startswith(b"id:"):
                    cursor = line[3:].strip().decode()
                elif line.startswith(b"data:"):
                    yield {**json.loads(line[5:]), "id": cursor}

    def _open(self, method: str, path: str, body: Any, timeout: float, headers: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", "authorization": f"Bearer {self.key}", **(headers or {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, given, method=method)
        return urllib.request.urlopen(request, timeout=timeout)

    def conversation(self) -> str:
        return str(self.call("POST", "/v1/conversations", {"model": MODEL})["id"])

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                return True
        except OSError:
            return False

    def find(self, *words: str) -> list[psutil.Process]:
        """Services whose command line has all the words, without the guards above them."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue  # ended meanwhile
            if all(word in line for word in words) and "guard" not in line:
                found.append(process)
        return found

    @cached_property
    def stores(self) -> dict[str, str]:
        """What services are told of PostgreSQL and Redis. Asked once: a service may just be dead later."""
        variables = self.find("runinference")[0].environ()
        return {name: variables[name] for name in ("DATABASE_URL", "REDIS_URL")}

    def query(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.stores["DATABASE_URL"]) as connection:
            return connection.execute(statement, parameters).fetchall()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.stores["DATABASE_URL"]) as connection:
            connection.execute(statement)

    def redis_url(self) -> str:
        return self.stores["REDIS_URL"]

    def output(self) -> str:
        return (self.folder / "up.log").read_text()


@contextmanager
def installation(
    models: str, environment: dict[str, str] | None = None, *, within: float = 120, turns_away: bool = False
) -> Iterator[Installation]:
    """Starts the site with this models.toml and waits until it is ready; ends it afterwards.

    `turns_away`: in a crowd, by prediction. What is learned while processes are killed is not to be gone by.
    """
    with tempfile.TemporaryDirectory(prefix="chatsite-up-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "models.toml").write_text(models)
        port = free_port()
        inherited = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
        variables = {
            **inherited,
            "CHATSITE_STATE": str(folder / "var"),
            "CHATSITE_MODELS": str(folder / "models.toml"),
            "CHATSITE_BACKGROUND": "off",
            "PORT": str(port),
            **(environment or {}),
        }
        with (folder / "up.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "up"], cwd=ROOT, env=variables, stdout=log, stderr=log
            )
        site = Installation(port, folder, process)
        try:
            deadline = time.monotonic() + within
            while not site.ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the site did not get ready:\n{site.output()[-6000:]}")
                time.sleep(0.2)
            lines = (folder / "var" / "demo.env").read_text().splitlines()
            site.demo = dict(line.split("=", 1) for line in lines if "=" in line)
            if not turns_away:
                site.execute(TURNS_NOBODY_AWAY)
            yield site
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(20)


@contextmanager
def fake_engine(**options: Any) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A fake engine in a process of its own: its URL, and the process."""
    port = free_port()
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.fakes.engine", f"--port={port}", f"--model-path={MODEL_PATH}", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def models_toml(*replicas: str, engine: str = "") -> str:
    """A models.toml with the bundled model on these replicas, or on engines that the site starts."""
    where = f"replicas = {json.dumps(list(replicas))}" if replicas else f"engine = {engine}"
    return f"""
[[models]]
name = "{MODEL}"
title = "SmolLM2 135M"
context_length = 4096
path = "{MODEL_PATH}"
{where}
price = {{input = "0.10", cached = "0.01", output = "0.40"}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
