"""Calls of the flex tier while runners, engines and Redis fail: each ends, is billed once, and holds nothing then."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from chatsite.redis import async_client
from inference import claims, renewal, sweep
from inference.completions import ending
from inference.redis import keys
from quotas import selectors
from quotas import services as quota_services
from quotas.scripts import quota_prefix
from tests.conversations.callers import Caller
from tests.inference.completions.flex_calls import aside, change_plan, limit_tokens, reserved, waits
from tests.inference.completions.route_calls import PATH, entries, over, rows
from tests.inference.runner.conftest import House
from tests.waiting import wait_until

Chat = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("soon")


async def test_a_runner_that_dies_between_reserving_and_claiming(
    house: House, caller: Caller, flex: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await house.engine()
    first = await house.runner()
    take, dead = claims.take, asyncio.Event()
    loop = asyncio.get_running_loop()

    def never(*given: Any) -> Any:
        loop.call_soon_threadsafe(dead.set)
        raise OSError("the runner dies here")

    monkeypatch.setattr(claims, "take", never)
    async with caller.open("POST", PATH, flex(max_tokens=20)) as call:
        await asyncio.wait_for(dead.wait(), 30)
        await house.crash(first)
        monkeypatch.setattr(claims, "take", take)
        assert await reserved(house) == 1
        [row] = await rows()
        assert (row.status, row.attempt) == ("queued", 0)
        await house.runner()
        answer = await call.answer()
    assert answer.status == 200, answer.body
    assert answer.json()["usage"]["completion_tokens"] == 20
    await over(house)
    [entry] = await entries()
    assert (entry.output, entry.lane) == (20, "batch")
    assert await reserved(house) == 0
    assert engine.running == 0


async def test_an_engine_that_dies_is_followed_by_another_without_a_second_reservation(
    house: House, caller: Caller, flex: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = AsyncMock(wraps=quota_services.start)
    monkeypatch.setattr(quota_services, "start", start)
    first = await house.engine(tokens_per_second=100)
    await house.runner()
    async with caller.open("POST", PATH, flex(max_tokens=60)) as call:
        await wait_until(lambda: first.running == 1 and len(first.calls[-1].token_ids) > 10)
        second = await house.engine(tokens_per_second=300)
        first.kill()
        answer = await call.answer()
    assert answer.json()["usage"]["completion_tokens"] == 60
    assert len(second.calls) == 1
    assert start.await_count == 1
    await over(house)
    assert [each.output for each in await entries()] == [60]


async def test_redis_without_its_counters_has_those_that_run_and_not_those_that_wait(
    house: House, caller: Caller, flex: Chat
) -> None:
    await limit_tokens(house, 5000)
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    await change_plan(concurrent=1)
    async with caller.open("POST", PATH, flex(max_tokens=1000)):
        await wait_until(lambda: engine.running == 1 and len(engine.calls[-1].token_ids) > 3)
        async with caller.open("POST", PATH, flex(max_tokens=1000)):
            [first, second] = await waits(2)
            await aside(second)
            async for key in async_client().scan_iter(f"{quota_prefix(house.person.organization.id)}*"):
                await async_client().delete(key)
            plan = await selectors.aplan_of(house.person.organization.id)
            [spending] = await selectors.spendings(house.person.organization.id, plan.budgets)
            assert spending.taken == spending.reserved == first.prompt_tokens + 1000
    await wait_until(lambda: not ending.going)
    await over(house)
    [spending] = await selectors.spendings(house.person.organization.id, plan.budgets)
    assert spending.taken == sum(each.input + each.output for each in await entries())
    assert spending.reserved == 0


@pytest.mark.parametrize("held", [False, True])
async def test_redis_emptied_while_it_waits_and_its_caller_is_told(
    house: House, caller: Caller, flex: Chat, held: bool
) -> None:
    """The prompt of a stateless call is in Redis alone."""
    if held:
        await house.engine(tokens_per_second=50)
        await house.runner()
        await change_plan(concurrent=1)
    blocking = flex(max_tokens=3000)
    async with caller.open("POST", PATH, blocking) if held else caller.open("GET", "/v1/models") as other:
        if held:
            await wait_until(lambda: house.engines[0].running == 1)
        async with caller.open("POST", PATH, flex(max_tokens=5)) as call:
            row = (await waits(2 if held else 1))[-1]
            if held:
                await aside(row)
            await async_client().flushdb()
            if held:
                first = keys.place(keys.scheduler(house.model.name), (await rows())[0].id)
                await wait_until(lambda: async_client().exists(first))  # its runner has entered it again
                other.hang_up()
            else:
                await house.engine()
                await house.runner()
            answer = await call.answer()
    assert answer.status == 503, answer.body
    await wait_until(lambda: not ending.going)
    await over(house)
    assert await reserved(house) == 0
    assert [each.cost for each in await entries() if each.request_id == row.id] == [0]


async def test_one_that_waits_is_entered_again_and_reserves_nothing_by_that(
    house: House, caller: Caller, flex: Chat, settings: Any
) -> None:
    """Nor does it where its deadline is near, when the reservations of others are looked after."""
    settings.FLEX_WAIT_SECONDS = 8.0
    async with caller.open("POST", PATH, flex(max_tokens=5)):
        [row] = await waits()
        place = keys.place(keys.scheduler(house.model.name), row.id)
        await wait_until(lambda: async_client().exists(place))
        await async_client().flushdb()

        async def entered() -> bool:
            await sweep.sweep(loading=set())
            return bool(await async_client().exists(place))

        await wait_until(entered)
        assert await async_client().hget(place, "attempt") == b"0"  # so that each start is charged
        await async_client().delete(keys.RENEWAL_LOCK)
        await renewal.renew_waiting()
        assert await reserved(house) == 0
    await wait_until(lambda: not ending.going)
    await over(house)


async def test_a_request_that_made_place_keeps_what_it_reserved(house: House, caller: Caller, flex: Chat) -> None:
    """Also where it then waits for longer than a reservation lives by itself."""
    engine = await house.engine(tokens_per_second=50)
    runner = await house.runner()
    async with caller.open("POST", PATH, flex(max_tokens=200)) as call:
        await wait_until(lambda: engine.running == 1 and len(engine.calls[-1].token_ids) > 5)
        [row] = await rows()
        await house.end(runner)  # hands it over: it waits again
        live = f"{quota_prefix(house.person.organization.id)}:live"
        await async_client().zadd(live, {str(row.id): (await _now()) + 1500})
        await async_client().delete(keys.RENEWAL_LOCK)
        await renewal.renew_waiting()
        assert (await async_client().zscore(live, str(row.id)) or 0) > (await _now()) + 20_000
        await house.runner()
        answer = await call.answer()
    assert answer.json()["usage"]["completion_tokens"] == 200
    await over(house)


async def _now() -> float:
    seconds, micros = await async_client().time()
    return seconds * 1000 + micros / 1000
