"""What an operator sees at a glance."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from chatsite.redis import sync_client
from inference import overview
from inference.models import Replica, Request
from inference.redis import keys
from tests.admin_rows import make_model, make_request
from tests.conftest import Person

pytestmark = pytest.mark.django_db


def test_nothing_yet() -> None:
    found = overview.load()
    assert (found.requests, found.statuses, found.failures, found.output) == (0, [], [], 0)
    assert overview.load_serving() == []


def test_the_requests_of_a_day(person: Person) -> None:
    model = make_model()
    for _ in range(3):
        make_request(person, model)
    failed = make_request(
        person, model, status="failed", error_code="engine_unavailable", output_tokens=0, cached_tokens=0
    )
    running = {"status": "running", "finished_at": None, "released_at": None, "output_tokens": 7, "cached_tokens": 0}
    make_request(person, model, **running)
    old = make_request(person, model)
    Request.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=25))
    found = overview.load()
    assert [(each.status, each.requests, each.percent) for each in found.statuses] == [
        ("running", 1, 20.0),
        ("succeeded", 3, 60.0),
        ("failed", 1, 20.0),
    ]
    assert found.requests == 5
    assert (found.input, found.cached, found.output) == (3 * 812, 3 * 640, 3 * 245 + 7)
    assert found.failures == [failed]
    assert not found.capped


def test_a_busy_day_is_counted_from_its_newest(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST_COUNTED", 2)
    model = make_model()
    for _ in range(3):
        make_request(person, model)
    found = overview.load()
    assert (found.requests, found.capped) == (2, True)


def test_what_serves_and_what_waits() -> None:
    model, idle = make_model("busy"), make_model("idle", enabled=False)
    rows = [Replica.objects.create(model=model, url=f"http://127.0.0.1:810{number}") for number in range(3)]
    Replica.objects.create(model=model, url="http://127.0.0.1:8109", enabled=False)
    Replica.objects.create(model=idle, url="http://127.0.0.1:8110")
    prefix = keys.scheduler(model.name)
    now = int(time.time() * 1000)
    for row, state, seen in zip(rows, ("ready", "down", "ready"), (now, now, now - 60_000), strict=True):
        sync_client().hset(keys.replica(prefix, row.id), mapping={"state": state, "seen": seen})
    sync_client().zadd(keys.waiting(prefix), {"a": 1, "b": 2, "c": 1})
    [found] = overview.load_serving()
    assert (found.name, found.waiting, found.ready) == ("busy", 3, 1)
    assert [replica.state for replica in found.replicas] == ["ready", "down", "unknown"]
