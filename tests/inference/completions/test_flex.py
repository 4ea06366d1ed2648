"""Calls of the flex tier: they wait behind all others and hold nothing, reserve when they start, and cost half."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock

import pytest

from chatsite.database import run_db
from chatsite.ids import public_id
from inference import reservations
from inference.completions import ending
from inference.models import KeptCall, TextKeeping
from inference.runner import stream as streams
from quotas import selectors
from quotas.billing import statements
from quotas.periods import Period, today
from tests.conftest import Person
from tests.conversations.callers import Caller
from tests.inference.completions.flex_calls import aside, change_plan, reserved, waits
from tests.inference.completions.route_calls import PATH, chunks_of, entries, over, rows, text_of, told
from tests.inference.runner.conftest import House
from tests.waiting import wait_until

Chat = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("soon")


async def test_an_answer_says_that_it_was_flex_and_costs_half(house: House, caller: Caller, flex: Chat) -> None:
    await house.engine()
    await house.runner()
    answer = await caller.call("POST", PATH, flex(max_tokens=21))
    assert answer.status == 200, answer.body
    body = answer.json()
    assert body["service_tier"] == "flex"
    assert body["choices"][0]["message"]["content"] == told(house)[1]
    assert int(answer.headers["x-ratelimit-limit-tokens"]) > 0
    await over(house)
    [row], [entry] = await rows(), await entries()
    assert (row.lane, entry.lane, entry.outcome) == ("batch", "batch", "succeeded")
    whole = entry.input * Decimal("0.10") + 21 * Decimal("0.40")
    assert entry.cost == (whole / 2 / 1_000_000).quantize(Decimal("1e-10"))
    statement = await run_db(statements.statement, house.person.organization, Period.month(today()))
    [line] = statement.lines
    assert line.batch and line.sum.cost == entry.cost


async def test_every_chunk_says_it(house: House, caller: Caller, flex: Chat) -> None:
    await house.engine()
    await house.runner()
    body = flex(max_tokens=10, stream=True, stream_options={"include_usage": True})
    chunks = chunks_of(await caller.call("POST", PATH, body))
    assert {chunk["service_tier"] for chunk in chunks} == {"flex"}
    assert text_of(chunks) == told(house)[1]
    prompt = {"model": "smollm2-135m", "prompt": "A river", "max_tokens": 5, "service_tier": "flex"}
    answer = await caller.call("POST", "/v1/completions", prompt)
    assert answer.json()["service_tier"] == "flex"
    assert {row.lane for row in await rows()} == {"batch"}
    await over(house)


@pytest.mark.parametrize("tier", [{}, {"service_tier": "auto"}, {"service_tier": "default"}, {"service_tier": None}])
async def test_without_it_nothing_is_said_and_nothing_is_asked_before_a_start(
    house: House, caller: Caller, chat: Chat, tier: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start = AsyncMock()
    monkeypatch.setattr(streams, "may_start", may_start)
    await house.engine()
    await house.runner()
    answer = await caller.call("POST", PATH, chat(max_tokens=4, **tier))
    assert "service_tier" not in answer.json()
    chunks = chunks_of(await caller.call("POST", PATH, chat(max_tokens=4, stream=True, **tier)))
    assert not any("service_tier" in chunk for chunk in chunks)
    assert not may_start.called
    assert {row.lane for row in await rows()} == {"paid"}


async def test_a_hundred_that_wait_hold_nothing(house: House, caller: Caller, flex: Chat) -> None:
    await change_plan(requests_per_minute=100_000, concurrent=1, tokens_per_minute=2000)
    calls = [asyncio.create_task(caller.call("POST", PATH, flex(max_tokens=500))) for _ in range(100)]
    try:
        await waits(100)
        plan = await selectors.aplan_of(house.person.organization.id)
        [standing] = (await selectors.remaining(house.person.principal, plan)).standings
        assert (standing.tokens, standing.running) == (0, 0)
        assert await reserved(house) == 0
        found = await run_db(reservations.open_requests, house.person.organization.id)
        assert (len(found.open), len(found.waiting)) == (0, 100)
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await wait_until(lambda: not ending.going)
    await over(house)
    found = await entries()
    assert len(found) == 100
    assert {(each.lane, each.outcome, each.input, each.output, each.cost) for each in found} == {
        ("batch", "cancelled", 0, 0, 0)
    }
    assert await reserved(house) == 0


async def test_one_after_another_starts_where_one_may_run(house: House, caller: Caller, flex: Chat) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    await change_plan(concurrent=1)
    most, ended = 0, False

    async def watch() -> None:
        nonlocal most
        while not ended:
            most = max(most, engine.running)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(*(caller.call("POST", PATH, flex(max_tokens=20)) for _ in range(3)))
    ended = True
    await watching
    assert [answer.status for answer in answers] == [200] * 3
    assert most == 1
    assert len(engine.calls) == 3
    await over(house)
    assert [each.output for each in await entries()] == [20] * 3
    assert len({each.request_id for each in await entries()}) == 3


async def test_several_answers_reserve_each_by_itself(house: House, caller: Caller, flex: Chat) -> None:
    engine = await house.engine()
    await house.runner()
    await change_plan(concurrent=1)
    answer = await caller.call("POST", PATH, flex(max_tokens=5, n=3))
    assert answer.status == 200, answer.body
    assert len(answer.json()["choices"]) == 3
    assert len(engine.calls) == 3
    await over(house)


async def test_others_start_beside_those_that_are_held_back(
    house: House, caller: Caller, chat: Chat, flex: Chat, stranger: Person
) -> None:
    await house.engine(tokens_per_second=100)
    await house.runner()
    await change_plan(concurrent=1)
    async with caller.open("POST", PATH, flex(max_tokens=2000)):
        await wait_until(lambda: house.engines[0].running == 1)
        async with caller.open("POST", PATH, flex(max_tokens=5)):
            [_, second] = await waits(2)
            await aside(second)
            other = Caller(stranger.headers)
            for body in (chat(max_tokens=5), flex(max_tokens=5)):
                assert (await other.call("POST", PATH, body)).status == 200
    await wait_until(lambda: not ending.going)
    await over(house)


async def test_who_hangs_up_while_held_back_costs_nothing(house: House, caller: Caller, flex: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    await change_plan(concurrent=1)
    async with caller.open("POST", PATH, flex(max_tokens=2000)):
        await wait_until(lambda: engine.running == 1)
        async with caller.open("POST", PATH, flex(max_tokens=5, stream=True)):
            [_, second] = await waits(2)
            await aside(second)
        await wait_until(lambda: not ending.going)
        [entry] = [each for each in await entries() if each.request_id == second.id]
        assert (entry.outcome, entry.lane, entry.output, entry.cost) == ("cancelled", "batch", 0, 0)
        assert await reserved(house) == 1
    await wait_until(lambda: not ending.going)
    await over(house)
    assert len(engine.calls) == 1


async def test_a_repeat_follows_the_same_call(house: House, caller: Caller, flex: Chat) -> None:
    engine = await house.engine(tokens_per_second=100)
    async with caller.open("POST", PATH, flex(max_tokens=20), idempotency_key="one") as first:
        await waits()
        async with caller.open("POST", PATH, flex(max_tokens=20), idempotency_key="one") as second:
            await house.runner()
            answers = [await first.answer(), await second.answer()]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["service_tier"] == "flex"
    assert len(engine.calls) == 1
    await over(house)


async def test_its_text_is_kept_and_its_request_can_be_looked_at(house: House, caller: Caller, flex: Chat) -> None:
    await run_db(lambda: TextKeeping.objects.create(organization=house.person.organization))
    async with caller.open("POST", PATH, flex(max_tokens=10)) as call:
        [row] = await waits()
        shown = await caller.call("GET", f"/v1/requests/{public_id('req', row.id)}")
        assert (shown.status, shown.json()["status"]) == (200, "queued")
        await house.engine()
        await house.runner()
        answer = await call.answer()
    await over(house)
    [kept] = await run_db(lambda: list(KeptCall.objects.all()))
    assert kept.answer == answer.json()["choices"][0]["message"]["content"] != ""
    shown = (await caller.call("GET", f"/v1/requests/{public_id('req', row.id)}")).json()
    assert (shown["status"], shown["usage"]["output"]) == ("succeeded", 10)
