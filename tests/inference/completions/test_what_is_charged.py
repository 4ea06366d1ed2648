"""What of a call is billed and counts against limits where it was cut short or never ran."""

from typing import Any

from chatsite.database import run_db
from inference import services
from inference.models import Request
from quotas.models import LedgerEntry, Plan
from quotas.protocol import Standing
from quotas.selectors import known_plans, plan_of, remaining
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, entries, over, rows
from tests.inference.runner.conftest import House
from tests.tuning import atune, patience
from tests.waiting import wait_until


async def test_a_caller_that_hangs_up_frees_the_engine(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    for stream in (True, False):
        async with caller.open("POST", PATH, chat(max_tokens=3000, stream=stream)) as call:
            await wait_until(lambda: engine.running == 1, 5)
            await wait_until(lambda: len(engine.calls[-1].token_ids) > 10, 5)
            if stream:
                await wait_until(lambda: len(call.received.chunks) > 3, 5)
        await wait_until(lambda: engine.running == 0, 1)
        await over(house)
    assert [row.status for row in await rows()] == ["cancelled", "cancelled"]
    billed = await entries()
    assert len(billed) == 2
    assert all(entry.output > 0 for entry in billed)  # S23: what was made is billed once


async def standing(house: House) -> Standing:
    """Of the plan's limits."""
    plan = await run_db(plan_of, house.person.organization.id)
    [found] = (await remaining(house.person.principal, plan)).standings
    return found


async def test_a_prompt_that_was_read_counts_against_the_minute(house: House, caller: Caller, chat: Chat) -> None:
    """Nothing is billed, but whoever hangs up before the first token has had an engine read it."""
    await run_db(lambda: Plan.objects.update(tokens_per_minute=3000))  # 50 drain in a second
    known_plans.clear()
    engine = await house.engine(first_token_seconds=30)
    await house.runner()
    async with caller.open("POST", PATH, chat("word " * 1000, max_tokens=5)):
        await wait_until(lambda: engine.running == 1)
    await over(house)
    [entry] = await entries()
    assert (entry.input, entry.output, entry.cost) == (0, 0, 0)
    [row] = await rows()
    now = await standing(house)
    assert row.prompt_tokens > 1000
    assert now.bucket.tokens_per_minute == 3000
    assert row.prompt_tokens - 15 * 50 < now.tokens <= row.prompt_tokens


async def test_one_that_never_reached_an_engine_counts_nothing(
    house: House, caller: Caller, chat: Chat, settings: Any
) -> None:
    await atune(lanes=patience(0.5))
    await house.runner()
    assert (await caller.call("POST", PATH, chat("word " * 1000))).status == 503
    await over(house)
    assert (await standing(house)).tokens == 0


async def test_s23_of_a_whole_answer_that_fails_no_choice_is_charged(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=500, n=2)) as call:
        await wait_until(lambda: len(engine.calls) == 2 and all(len(each.token_ids) > 5 for each in engine.calls), 5)
        await services.cancel((await rows())[1].id)
        assert (await call.answer()).status == 503
    await over(house)

    async def sums() -> list[tuple[int, int]]:
        return await run_db(
            lambda: [
                (sum(each.output for each in found), sum(each.cost for each in found))
                for row in Request.objects.all()
                if (found := list(LedgerEntry.objects.filter(request_id=row.id)))
            ]
        )

    async def taken_back() -> bool:
        return await sums() == [(0, 0), (0, 0)]

    await wait_until(taken_back, 5)
    assert {row.status for row in await rows()} == {"cancelled"}
