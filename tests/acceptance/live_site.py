"""The site as its users meet it: web server, runner and a fake engine, each a process, on stores of their own."""

import itertools
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
import psycopg
import redis

from chatsite.operations.processes import Command, GuardedProcess
from tests.acceptance.installation import MODEL_PATH, TUNES, free_port
from tests.waiting import wait_until_sync

ROOT = Path(__file__).parents[2]
_numbers = itertools.count(1)  # of the sites of this run: each has stores of its own
# How the engine speaks unless a test says otherwise: it goes on until it is stopped.
PACE = {"tokens_per_second": 40, "first_token_seconds": 0.0, "stop": 0.0, "script": ""}
MODEL = "smollm2-135m"
NEWEST = "SELECT id FROM conversations_message ORDER BY id DESC LIMIT 1"
USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
RUNNING = """
    SELECT message.id, person.email FROM conversations_message message
    JOIN conversations_conversation conversation ON conversation.id = message.conversation_id
    JOIN accounts_user person ON person.id = conversation.user_id
    WHERE message.status IN ('pending', 'streaming')
"""
NOT_SHARED = """
    DELETE FROM accounts_membership WHERE organization_id IN (
        SELECT id FROM accounts_organization WHERE personal_of_id IS NULL
    )
"""
UNRELEASED = "SELECT count(*) FROM inference_request WHERE released_at IS NULL"
PASSWORD = "correct horse battery staple"
# name -> plan
PEOPLE = {"Ada": "demo", "Eve": "demo", "Finn": "free"}
# One process for all steps: starting Python and Django takes longer than they do.
SET_UP = """
import django
django.setup()
import json
from pathlib import Path
from django.conf import settings
from django.core.management import call_command
from chatsite.accounts.services import create_api_key, create_user, personal_organization
from quotas.services import subscribe
call_command("migrate", verbosity=0, interactive=False)
call_command("syncmodels")
call_command("demo", url={url!r})
people = {{}}
for name, plan in {people!r}.items():
    user = create_user(f"{{name.lower()}}@example.com", {password!r}, name=name, verified=True)
    organization = personal_organization(user)
    subscribe(organization.pk, plan)
    people[name] = create_api_key(user, organization, "script")[1]
(settings.STATE_DIR / "people.json").write_text(json.dumps(people))
"""
MODELS = """
[[models]]
name = "smollm2-135m"
title = "SmolLM2 135M"
description = "Small and quick"
context_length = 4096
replicas = ["{url}"]
price = {{input = "0.10", cached = "0.01", output = "0.40"}}

[[models]]
name = "smollm2-1.7b"
title = "SmolLM2 1.7B"
description = "Slower, and knows more"
engine_model = "smollm2-135m"
context_length = 8192
replicas = ["{url}/"]
fallback = "smollm2-135m"
price = {{input = "0.30", cached = "0.03", output = "1.20"}}

[[models]]
name = "smollm2-360m"
title = "SmolLM2 360M"
description = "Nothing answers at its address"
context_length = 4096
path = "{path}"
replicas = ["http://127.0.0.1:9"]
price = {{input = "0.10", cached = "0.01", output = "0.40"}}
"""
LARGE_MODEL, LOADING_MODEL = "smollm2-1.7b", "smollm2-360m"
# An engine that is slow in one test and quick in the next teaches nothing; one that is to say nothing has not failed
PATIENT = TUNES % '{"prediction": {"min_samples": 100000}, "ejection": {"silence_seconds": 60}}'


@dataclass(frozen=True)
class Account:
    """Somebody who can sign in."""

    email: str
    password: str
    api_key: str


@dataclass
class LiveSite:
    url: str
    engine_url: str
    environment: dict[str, str]
    folder: Path
    accounts: dict[str, Account] = field(default_factory=dict)  # demo, and those of PEOPLE
    _commands: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _processes: dict[str, GuardedProcess] = field(default_factory=dict)
    _sessions: dict[str, dict[str, str]] = field(default_factory=dict)

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

    def forget(self) -> None:
        """No conversations, no replies, no faults, nobody locked out, everybody in their own organization alone.

        As if no test had been before."""
        for message, email in self.execute(RUNNING):
            [account] = [name for name, account in self.accounts.items() if account.email == email]
            self.call(account, "POST", f"/v1/messages/msg_{message}/stop")
        wait_until_sync(lambda: self.execute(UNRELEASED) == [(0,)], 20, "a reply does not end")
        self.engine("reset")
        self.engine("options", **PACE)
        with psycopg.connect(self.environment["DATABASE_URL"]) as connection:
            connection.execute("UPDATE conversations_conversation SET active_leaf_id = NULL")
            for table in ("share", "message", "conversation"):
                connection.execute(f"DELETE FROM conversations_{table}")
            connection.execute(NOT_SHARED)
            connection.execute("DELETE FROM accounts_apikey WHERE name NOT IN ('script', 'demo.env')")
            connection.execute(PATIENT)
        client = redis.Redis.from_url(self.environment["REDIS_URL"])
        for key in client.scan_iter("*allauth:rl:*"):
            client.delete(key)
        client.close()

    def call(self, account: str, method: str, path: str, body: Any = None) -> Any:
        """The API's JSON answer to that account's key. Raises HTTPError."""
        headers = {"authorization": f"Bearer {self.accounts[account].api_key}", "content-type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return msgspec.json.decode(answer.read() or b"null")

    def say(self, account: str, question: str, answer: str, conversation: str = "") -> str:
        """A finished turn, in a new conversation if none is named: its conversation."""
        where = conversation or str(self.call(account, "POST", "/v1/conversations", {"model": MODEL})["id"])
        self.engine("options", script=answer, tokens_per_second=0)
        body = {"content": question, "stream": False}
        reply = self.call(account, "POST", f"/v1/conversations/{where}/messages", body)
        assert reply["status"] == "complete", reply
        return where

    def start_reply(self, account: str, question: str, model: str = MODEL, **options: Any) -> str:
        """A reply that runs or waits, in a new conversation: its conversation. `options`: of the API's message."""
        where = str(self.call(account, "POST", "/v1/conversations", {"model": model})["id"])
        url = f"{self.url}/v1/conversations/{where}/messages"
        headers = {"authorization": f"Bearer {self.accounts[account].api_key}", "content-type": "application/json"}
        data = msgspec.json.encode({"content": question, **options})
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            answer.readline()  # it goes on without a reader
        return where

    def new_session(self, account: str) -> dict[str, str]:
        """Cookies of a fresh sign-in."""
        jar = CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        browser.addheaders = [("user-agent", USER_AGENT)]
        page = browser.open(f"{self.url}/accounts/login/", timeout=10).read().decode()
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token
        who = self.accounts[account]
        form = {"login": who.email, "password": who.password, "csrfmiddlewaretoken": token[1]}
        request = urllib.request.Request(
            f"{self.url}/accounts/login/", urlencode(form).encode(), {"referer": f"{self.url}/accounts/login/"}
        )
        browser.open(request, timeout=10).close()
        found = {cookie.name: cookie.value or "" for cookie in jar}
        assert "sessionid" in found, f"{who.email} could not sign in"
        return found

    def session(self, account: str) -> dict[str, str]:
        """Cookies of a sign-in that whoever asks shares: do not sign it out."""
        if account not in self._sessions:
            self._sessions[account] = self.new_session(account)
        return self._sessions[account]

    def mails(self) -> list[str]:
        """The texts of all mail that was sent, oldest first, each with its headers To and Subject."""
        files = sorted((self.folder / "mail").glob("*.log"), key=lambda file: file.stat().st_mtime_ns)
        found = []
        for file in files:
            for raw in file.read_bytes().split(b"-" * 79 + b"\n"):
                if raw.strip():
                    message = message_from_bytes(raw, policy=policy.default)
                    body = message.get_body(("plain",))
                    text = body.get_content() if body else ""
                    found.append(f"To: {message['To']}\nSubject: {message['Subject']}\n\n{text}")
        return found

    def link_in_mail(self, to: str, within: float = 10.0) -> str:
        """The address of this site in the newest mail to somebody."""

        def look() -> str:
            texts = [text for text in self.mails() if text.startswith(f"To: {to}\n")]
            links = re.findall(rf"{re.escape(self.url)}/\S+", texts[-1]) if texts else []
            return links[0] if links else ""

        return wait_until_sync(look, within, f"no mail with a link to {to}")

    # Processes

    def start(self, name: str, *arguments: str) -> GuardedProcess:
        """Starts `python ARGUMENTS`; its output goes to NAME.log."""
        self._commands[name] = arguments
        command = Command([sys.executable, *arguments], self.environment, ROOT)
        self._processes[name] = GuardedProcess(command, self.folder / f"{name}.log")
        return self._processes[name]

    def end(self, name: str) -> None:
        """Ends `web`, `runner` or `engine`."""
        self._processes[name].end()

    def start_again(self, name: str) -> None:
        """Starts what was ended, and waits until the site is ready."""
        self.start(name, *self._commands[name])
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        wait_until_sync(self._ready, 40, f"the site did not get ready; logs:\n{self.logs(3000)}")

    def readiness(self) -> Any:
        """What /readyz says, whatever its status."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            return msgspec.json.decode(error.read())

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def end_all(self) -> None:
        for process in self._processes.values():
            process.end()

    def logs(self, last: int = 0) -> str:
        """What the processes have written, or the end of it."""
        return "\n".join(f"--- {file.name}\n{file.read_text()[-last:]}" for file in self.folder.glob("*.log"))


@contextmanager
def live_site(
    models: str = MODELS, environment: Mapping[str, str] | None = None, **engine_options: Any
) -> Iterator[LiveSite]:
    """`models`: a models.toml in which {url} is the engine's, {path} the bundled model's. `engine_options`: see
    tests.fakes.engine."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chatsite-acceptance-")))
        port, engine_port = free_port(), free_port()
        variables = {**_environment(folder, next(_numbers)), **(environment or {})}
        site = LiveSite(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{engine_port}", variables, folder)
        stack.callback(site.end_all)
        (folder / "models.toml").write_text(models.format(url=site.engine_url, path=MODEL_PATH))
        _create_database(variables["DATABASE_URL"])
        options = [f"--{name.replace('_', '-')}={value}" for name, value in engine_options.items()]
        site.start("engine", "-m", "tests.fakes.engine", f"--port={engine_port}", "--max-model-len=8192", *options)
        script = SET_UP.format(url=site.url, people=PEOPLE, password=PASSWORD)
        set_up = site.start("set-up", "-c", script)
        daphne = ("-m", "daphne", "--bind=127.0.0.1", f"--port={port}", "--verbosity=0")
        site.start("web", *daphne, "chatsite.asgi:application")
        assert set_up.process.wait(60) == 0, (folder / "set-up.log").read_text()
        site.start("runner", "manage.py", "runinference")
        site.wait_until_ready()
        site.accounts = _accounts(folder)
        yield site


def _accounts(folder: Path) -> dict[str, Account]:
    demo = dict(line.split("=", 1) for line in (folder / "demo.env").read_text().splitlines())
    found = {
        "demo": Account(demo["CHATSITE_EMAIL"], demo["CHATSITE_PASSWORD"], demo["CHATSITE_API_KEY"]),
    }
    for name, key in msgspec.json.decode((folder / "people.json").read_bytes()).items():
        found[name] = Account(f"{name.lower()}@example.com", PASSWORD, key)
    return found


def _environment(folder: Path, number: int) -> dict[str, str]:
    database, redis = urlsplit(os.environ["DATABASE_URL"]), os.environ["REDIS_URL"]
    by_query = "db=" in redis
    return {
        "DJANGO_SETTINGS_MODULE": "chatsite.settings",
        "DATABASE_URL": urlunsplit(database._replace(path=f"/acceptance{number}")),
        "REDIS_URL": re.sub(r"db=\d+" if by_query else r"/\d*$", f"db={number}" if by_query else f"/{number}", redis),
        "CHATSITE_STATE": str(folder),
        "CHATSITE_MODELS": str(folder / "models.toml"),
        "DATABASE_POOL_SIZE": "6",
        "REPLICA_SLOTS": "3",  # a fourth reply waits
        "PREFILL_TOKENS_PER_SECOND": "50000",
        "EMAIL_URL": f"file:///{folder}/mail",  # three slashes, then the absolute path with its own
    }


def _create_database(url: str) -> None:
    name = urlsplit(url).path.strip("/")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
