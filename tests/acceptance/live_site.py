"""The site as its users meet it: web server, runner and a fake engine, each a process, on stores of their own."""

import os
import re
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg

from chatsite.management.commands.demo import read_env
from chatsite.operations.processes import Command, GuardedProcess
from tests.acceptance.installation import free_port
from tests.waiting import wait_until_sync

ROOT = Path(__file__).parents[2]
DATABASE, REDIS_NUMBER = "acceptance", 1
# One process for all three steps: starting Python and Django takes longer than they do.
SET_UP = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0, interactive=False)
call_command("syncmodels")
call_command("demo", url={url!r})
"""
MODELS = """
[[models]]
name = "smollm2-135m"
title = "SmolLM2 135M"
context_length = 4096
replicas = ["{url}"]
price = {{input = "0.10", cached = "0.01", output = "0.40"}}
"""


@dataclass
class LiveSite:
    url: str
    engine_url: str
    environment: dict[str, str]
    folder: Path
    demo: dict[str, str] = field(default_factory=dict)

    @property
    def email(self) -> str:
        return self.demo["CHATSITE_EMAIL"]

    @property
    def password(self) -> str:
        return self.demo["CHATSITE_PASSWORD"]

    def engine(self, what: str, **values: Any) -> Any:
        """`engine("options", tokens_per_second=20)`, `engine("faults", status=500)`, `engine("reset")`.

        What there is: see tests.fakes.engine.
        """
        data = None if what == "state" else msgspec.json.encode(values)
        with urllib.request.urlopen(f"{self.engine_url}/fake/{what}", data, timeout=5) as answer:
            return msgspec.json.decode(answer.read())

    def execute(self, statement: str, *parameters: Any) -> list[Any]:
        """SQL on the site's database."""
        with psycopg.connect(self.environment["DATABASE_URL"]) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def start(self, name: str, *arguments: str) -> GuardedProcess:
        command = Command([sys.executable, *arguments], self.environment, ROOT)
        return GuardedProcess(command, self.folder / f"{name}.log")


@contextmanager
def live_site(**engine_options: Any) -> Iterator[LiveSite]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chatsite-acceptance-")))
        port, engine_port = free_port(), free_port()
        site = LiveSite(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{engine_port}", _environment(folder), folder)
        (folder / "models.toml").write_text(MODELS.format(url=site.engine_url))
        _create_database()
        options = [f"--{name.replace('_', '-')}={value}" for name, value in engine_options.items()]

        def start(name: str, *arguments: str) -> GuardedProcess:
            process = site.start(name, *arguments)
            stack.callback(process.end)
            return process

        start("engine", "-m", "tests.fakes.engine", f"--port={engine_port}", *options)
        set_up = start("set-up", "-c", SET_UP.format(url=site.url))
        start("web", "-m", "daphne", "--bind=127.0.0.1", f"--port={port}", "--verbosity=0", "chatsite.asgi:application")
        assert set_up.process.wait(60) == 0, (folder / "set-up.log").read_text()
        start("runner", "manage.py", "runinference")
        wait_until_sync(lambda: _ready(site.url), 40, f"the site did not get ready; logs:\n{_logs(folder)}")
        site.demo = read_env(folder / "demo.env")
        yield site


def _environment(folder: Path) -> dict[str, str]:
    database = urlsplit(os.environ["DATABASE_URL"])
    redis = os.environ["REDIS_URL"]
    number = (
        re.sub(r"db=\d+", f"db={REDIS_NUMBER}", redis)
        if "db=" in redis
        else re.sub(r"/\d*$", f"/{REDIS_NUMBER}", redis)
    )
    return {
        "DJANGO_SETTINGS_MODULE": "chatsite.settings",
        "DATABASE_URL": urlunsplit(database._replace(path=f"/{DATABASE}")),
        "REDIS_URL": number,
        "CHATSITE_STATE": str(folder),
        "CHATSITE_MODELS": str(folder / "models.toml"),
        "DATABASE_POOL_SIZE": "6",
    }


def _create_database() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _logs(folder: Path) -> str:
    return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in folder.glob("*.log"))
