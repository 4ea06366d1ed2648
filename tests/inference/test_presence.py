"""Calls whose process is gone are cancelled, and no others."""

import asyncio
import json
import time
from typing import Any
from uuid import UUID

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from inference import presence
from inference.completions.acceptance import Accepted, accept, take_over
from inference.completions.calls import read_chat
from inference.models import Request
from inference.presence import Presence, gone
from inference.redis import keys
from inference.sweep import sweep
from quotas.models import LedgerEntry
from tests.inference.runner.conftest import House, house, model
from tests.waiting import wait_until

__all__ = ["house", "model"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "GONE_AFTER_SECONDS", 0.5)
    monkeypatch.setattr(presence, "LIFE_SECONDS", 0.5)
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.1)


async def call(house: House, caller_id: UUID | None, **changes: Any) -> Accepted:
    """One that is accepted, and whose process does nothing more about it."""
    body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2000, **changes}
    return await accept(house.person.principal, read_chat(json.dumps(body).encode()), caller_id=caller_id)


async def row(accepted: Accepted) -> Request:
    return await run_db(Request.objects.get, id=accepted.requests[0])


async def test_a_process_is_gone_only_after_a_while(database: None) -> None:
    here, lost = Presence(), new_id()
    hold = here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    assert await gone([here.id, lost]) == []
    assert await gone([]) == []

    async def found() -> list[UUID]:
        return await gone([here.id, lost])

    started = time.monotonic()
    assert await wait_until(found, 3) == [lost]
    assert time.monotonic() - started > 0.3
    assert isinstance(hold, presence.Hold)


async def test_a_process_is_present_as_long_as_it_holds_something(database: None) -> None:
    here = Presence()
    first, second = here.hold(), here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    del first
    await asyncio.sleep(0.8)
    assert await async_client().exists(keys.presence(here.id))
    del second

    async def away() -> bool:
        return not await async_client().exists(keys.presence(here.id))

    await wait_until(away, 3)
    third = here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    assert third is not None


def busy(seconds: float) -> None:
    """Whoever calls gets nothing else done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


async def test_a_busy_event_loop_is_not_gone(database: None) -> None:
    here = Presence()
    hold = here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    for _ in range(3):
        busy(0.8)
        assert await async_client().exists(keys.presence(here.id))
        assert await gone([here.id]) == []
    assert hold is not None


async def test_what_redis_lost_is_entered_again_in_time(database: None) -> None:
    here = Presence()
    hold = here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    for _ in range(10):
        await async_client().delete(keys.presence(here.id))
        assert await gone([here.id]) == []
        await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
        assert await gone([here.id]) == []
    assert hold is not None


async def test_s23_calls_of_a_killed_process_end_and_are_billed(house: House, settings: Any) -> None:
    settings.REPLICA_SLOTS = 1
    engine = await house.engine(tokens_per_second=40)
    await house.runner()
    here, killed = Presence(), new_id()
    hold = here.hold()
    running = await call(house, killed)
    await wait_until(lambda: engine.running == 1, 5)
    waiting = await call(house, killed)

    async def released() -> bool:
        rows = [await row(each) for each in (running, waiting)]
        return all(each.released_at is not None for each in rows)

    await wait_until(released, 12, message=str([(await row(running)).status, (await row(waiting)).status]))
    assert engine.running == 0
    assert [(await row(each)).status for each in (running, waiting)] == ["cancelled", "cancelled"]
    [entry] = await run_db(lambda: list(LedgerEntry.objects.filter(request_id=running.requests[0])))
    assert entry.output == (await row(running)).output_tokens > 0
    await house.nothing_is_held()
    assert hold is not None


async def test_others_go_on(house: House) -> None:
    engine = await house.engine(tokens_per_second=40)
    await house.runner()
    here = Presence()
    hold = here.hold()
    kept, forever, taken_over = await call(house, here.id), await call(house, None), await call(house, new_id())
    await take_over(taken_over.requests, here.id)
    await wait_until(lambda: engine.running == 3, 5)
    for _ in range(50):  # 5 s, over the age from which the sweep looks at a request
        await sweep()
        await asyncio.sleep(0.1)
    assert engine.running == 3
    assert [(await row(each)).status for each in (kept, forever, taken_over)] == ["running"] * 3
    assert hold is not None
