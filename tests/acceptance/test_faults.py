"""Kill it: each process, killed or frozen, while replies stream; then messages, ledger, leases, texts are counted."""

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
import redis

from inference.redis import keys
from quotas.money import units
from quotas.selectors import PLAN_SECONDS
from tests.acceptance.installation import MODEL, MODEL_PATH, Installation, fake_engine, installation, models_toml
from tests.fakes.engine_tokens import FakeModel
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.long
STREAMS, TOKENS = 8, 240
RECLAIM_SECONDS = 11.0
RATE = 40  # tokens/s: a reply takes 6 s
model = FakeModel(MODEL_PATH)


@dataclass
class Reader(threading.Thread):
    """A client that reads a reply, and comes back with its cursor when the connection breaks."""

    site: Installation
    conversation: str
    events: list[dict[str, Any]] = field(default_factory=list)
    message: str = ""
    cursor: str = ""
    refused: str = ""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        path = f"/v1/conversations/{self.conversation}/messages"
        deadline = time.monotonic() + 60
        body: Any = {"content": self.content, "max_tokens": TOKENS}
        method, key = "POST", path
        while time.monotonic() < deadline and not self.done:
            try:
                for event in self.site.events(method, key, body, after=self.cursor):
                    self.events.append(event)
                    self.message = self.message or event.get("messageId", "")
                    self.cursor = event["id"] or self.cursor
            except OSError as error:
                self.refused = str(error)
            if self.message:
                method, key, body = "GET", f"/v1/messages/{self.message}/stream", None
            time.sleep(0.2)

    @property
    def content(self) -> str:
        return f"Say something about {self.conversation}."

    @property
    def done(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in ("done", "error")

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "token")


def expected(reader: Reader) -> str:
    """What the engine says to that message without interruption."""
    prompt = model.chat_ids([{"role": "user", "content": reader.content}])
    return model.vocabulary.text(model.vocabulary.expect(prompt, TOKENS))


def victims(site: Installation, what: str, engine: int) -> list[psutil.Process]:
    if what == "engine":
        return [psutil.Process(engine)]
    words = {
        "web": "daphne",
        "runner": "runinference",
        "worker": "celery -A chatsite worker",
        "valkey": "valkey-server",
        "postgres": "postgres -D",
    }
    return site.find(words[what])[:1]


CASES = [
    ("web", signal.SIGKILL),
    ("runner", signal.SIGKILL),
    ("runner", signal.SIGSTOP),
    ("worker", signal.SIGKILL),
    ("valkey", signal.SIGKILL),
    ("postgres", signal.SIGKILL),
    ("engine", signal.SIGKILL),
    ("engine", signal.SIGSTOP),
]


@pytest.mark.parametrize("moment", ["before the first token", "mid-reply"])
@pytest.mark.parametrize(("what", "how"), CASES, ids=lambda value: getattr(value, "name", value))
def test_whatever_dies_every_reply_ends_and_is_counted_once(what: str, how: signal.Signals, moment: str) -> None:
    first_token = 1.5 if moment == "before the first token" else 0.0
    options = {"tokens_per_second": RATE, "first_token_seconds": first_token}
    with (
        fake_engine(**options) as (first, first_process),
        fake_engine(**options) as (second, _),
        installation(models_toml(first, second)) as site,
    ):
        site.execute("UPDATE quotas_plan SET monthly_tokens = 1000000000, monthly_cost = 1000")
        time.sleep(PLAN_SECONDS + 0.5)  # until then the web process goes by the plan that it knows
        readers = [Reader(site, site.conversation()) for _ in range(STREAMS)]
        for reader in readers:
            reader.start()
        wait_until_sync(lambda: all(r.message or r.refused for r in readers), 15)
        if not first_token:
            wait_until_sync(lambda: sum(len(r.text) > 30 for r in readers) == STREAMS, 15)
        for victim in victims(site, what, first_process.pid):
            victim.send_signal(how)
            if how == signal.SIGSTOP:
                threading.Timer(12, lambda pid=victim.pid: os.kill(pid, signal.SIGCONT)).start()
        if (what, how) == ("runner", signal.SIGKILL):
            wait_until_sync(lambda: _reclaimed(site), RECLAIM_SECONDS, "an attempt that died was not followed in time")
        wait_until_sync(lambda: all(reader.done for reader in readers), 45, _state(readers))
        _count(site, readers)
        _check_budgets(site)


def _state(readers: list[Reader]) -> str:
    return "\n".join(f"{r.message} {r.events[-1:]} {r.refused}" for r in readers)


def _reclaimed(site: Installation) -> bool:
    """Whether each request is in its second attempt."""
    return site.query("SELECT min(attempt) FROM inference_request") == [(2,)]


def _released(site: Installation) -> bool:
    return site.query("SELECT count(*) FROM inference_request WHERE released_at IS NULL") == [(0,)]


def _check_budgets(site: Installation) -> None:
    """What is counted in Redis is what the ledger has, after one more request, which counts anew what was lost."""
    site.call("POST", "/v1/completions", {"model": MODEL, "prompt": "Hello", "max_tokens": 1})
    wait_until_sync(lambda: _released(site), 20)
    client = redis.Redis.from_url(site.redis_url())
    [counters] = [client.hgetall(key) for key in client.scan_iter("v1:{o:*}:counted")]
    [(tokens, cost)] = site.query("SELECT sum(input + output), sum(cost) FROM quotas_ledgerentry")
    for unit, spent in (("tokens", tokens), ("cost", units(cost))):
        name = f"org {unit}"
        days = [int(value) for field, value in counters.items() if field.decode().startswith(f"{name} ")]
        held = int(counters.get(f"{name} held".encode(), 0))
        assert (sum(days) - held, held) == (spent, 0), counters


def _count(site: Installation, readers: list[Reader]) -> None:
    wait_until_sync(lambda: _released(site), 20)
    for reader in readers:
        assert reader.events[-1]["type"] == "done", _state(readers)
        assert reader.text == expected(reader), reader.message
        [(content,)] = site.query("SELECT content FROM conversations_message WHERE id = %s", reader.message[4:])
        assert content == reader.text
    rows = site.query("SELECT request_id, count(*), min(output) FROM quotas_ledgerentry GROUP BY request_id")
    assert [(count, output) for _, count, output in rows] == [(1, TOKENS)] * STREAMS
    statuses = site.query("SELECT status, count(*) FROM conversations_message WHERE role = 'assistant' GROUP BY status")
    assert statuses == [("complete", STREAMS)]
    assert site.query("SELECT count(*) FROM inference_partial") == [(0,)]
    client = redis.Redis.from_url(site.redis_url())
    prefix = keys.scheduler(MODEL)
    assert client.zcard(f"{prefix}:lease") == 0
    assert list(client.scan_iter(f"{prefix}:req:*")) == []
    for key in client.scan_iter(f"{prefix}:rep:*"):
        assert int(client.hget(key, "n") or 0) == 0
