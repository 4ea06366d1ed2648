"""The platform in front of a fake engine without think time, each in processes of its own, on loopback."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from tests.acceptance.installation import MODEL, ROOT, Installation, fake_engine, installation, models_toml

__all__ = ["MODEL", "ROOT", "House", "house"]
MANY = {"REPLICA_SLOTS": "2048", "RUNNER_STREAMS": "2048", "LOG_LEVEL": "WARNING"}

NEW_KEY = """
import sys
import django
django.setup()
from chatsite.accounts.services import create_api_key, create_user, personal_organization
from quotas.services import subscribe
user = create_user(f"{sys.argv[1]}@example.com", "correct horse battery staple", name="Somebody", verified=True)
organization = personal_organization(user)
subscribe(organization.pk, sys.argv[1])
print(create_api_key(user, organization, "benchmark")[1])
"""


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

    def key(self, plan: str) -> str:
        """An API key of a new organization that has the plan."""
        environment = {**os.environ, **self.runner.environ(), "DJANGO_SETTINGS_MODULE": "chatsite.settings"}
        made = subprocess.run(
            [sys.executable, "-c", NEW_KEY, plan], cwd=ROOT, env=environment, capture_output=True, check=True, text=True
        )
        return made.stdout.split()[-1]

    def engine_state(self) -> dict[str, Any]:
        """The fake engine's counters."""
        with urllib.request.urlopen(f"{self.engine}/fake/state", timeout=5) as answer:
            return dict(json.load(answer))

    def set_engine(self, **options: Any) -> None:
        """Changes how the fake engine behaves."""
        body = json.dumps(options).encode()
        urllib.request.urlopen(f"{self.engine}/fake/options", body, timeout=5).close()

    @property
    def model(self) -> str:
        return MODEL

    def answers(self, engine: str) -> bool:
        """Whether the engine at that URL is ready."""
        try:
            with urllib.request.urlopen(f"{engine}/health", timeout=2):
                return True
        except OSError:
            return False


@contextmanager
def house(server: str, *engines: dict[str, Any], turns_away: bool = False, **environment: str) -> Iterator[House]:
    """`engines`: options of each fake engine; without any, one that is as fast as it can be."""
    with ExitStack() as stack:
        urls = [stack.enter_context(fake_engine(**options))[0] for options in engines or [{"max_num_seqs": 4096}]]
        variables = {**MANY, **environment}
        yield stack.enter_context(house_of(models_toml(*urls), server, urls[0], turns_away=turns_away, **variables))


@contextmanager
def house_of(
    models: str, server: str, engine: str = "", *, turns_away: bool = False, **environment: str
) -> Iterator[House]:
    """The site with this models.toml. `engine`: URL of the fake one, where there is one."""
    variables = {"LOG_LEVEL": "WARNING", "ASGI_SERVER": server, **environment}
    with installation(models, variables, within=400, turns_away=turns_away) as site:
        yield House(site, engine, site.find(server)[0], site.find("runinference")[0])


def tree_cpu(root: psutil.Process) -> float:
    """CPU seconds of a process and its children so far."""
    times = [process.cpu_times() for process in [root, *root.children(recursive=True)]]
    return sum(time.user + time.system for time in times)
