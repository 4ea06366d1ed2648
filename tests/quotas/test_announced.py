"""Replies that are announced, and reserve when they start: of the batch lane, where they may wait for long."""

import asyncio
from uuid import UUID

import pytest

from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.ids import first_id, new_id
from chatsite.redis import async_client
from quotas import selectors, services
from quotas.budgets import BudgetLimit, Unit
from quotas.errors import (
    BudgetExhausted,
    NoPlan,
    RequestExceedsLimit,
    RequestsPerMinuteExceeded,
    Stopped,
    TokensPerMinuteExceeded,
    TooManyReplies,
)
from quotas.periods import day_number, midnight, today
from quotas.protocol import PlanLimits, Standing, Used, Want
from quotas.scripts import quota_prefix

TTL = 10.0


def limits(*budgets: BudgetLimit, tokens: int = 1000, concurrent: int = 2, requests: int | None = 10) -> PlanLimits:
    return PlanLimits("test", "free", tokens, concurrent, requests, budgets=budgets)


def budget(limit: int, days: int = 0) -> BudgetLimit:
    return BudgetLimit("organization", "org", "The budget of your organization", Unit.TOKENS, limit, days=days)


@pytest.fixture
def who() -> Principal:
    return Principal(new_id(), new_id(), chain_id=new_id())


async def known(who: Principal, **counters: int) -> None:
    """What is counted already, as if it had been read from the ledger: `tokens` of today."""
    day = day_number(today())
    found = {"org tokens": 1, f"org tokens {day}": counters.get("tokens", 0), "org tokens held": 0}
    await async_client().hset(f"{quota_prefix(who.organization_id)}:counted", mapping=found)


async def plan_standing(who: Principal, plan: PlanLimits) -> Standing:
    return (await selectors.remaining(who, plan)).standings[0]


async def held(who: Principal) -> int:
    return int(await async_client().zcard(f"{quota_prefix(who.organization_id)}:live"))


async def test_a_hundred_that_wait_hold_nothing_but_their_requests(who: Principal) -> None:
    await known(who)
    plan = limits(budget(1000), requests=100)
    for _ in range(100):
        await services.announce(who, plan, {new_id(): Want(500, 900)})
    standing = await plan_standing(who, plan)
    assert (standing.tokens, standing.running) == (0, 0)
    assert standing.requests >= 98
    assert await held(who) == 0
    [spending] = await selectors.spendings(who.organization_id, plan.budgets)
    assert (spending.taken, spending.reserved) == (0, 0)
    await services.reserve(who, limits(budget(1000), requests=None), {new_id(): Want(1000, 1000)}, TTL)


async def test_the_requests_of_a_minute_are_taken_when_they_are_announced_and_not_again(who: Principal) -> None:
    plan, ids = limits(requests=3, concurrent=100), [new_id() for _ in range(3)]
    for each in ids:
        await services.announce(who, plan, {each: Want(10)})
    with pytest.raises(RequestsPerMinuteExceeded) as refusal:
        await services.announce(who, plan, {new_id(): Want(10)})
    assert 0 < (refusal.value.retry_after or 0) <= 20
    for each in ids:
        await services.start(who, plan, each, Want(10), TTL)
    standing = await plan_standing(who, plan)
    assert (standing.running, standing.tokens) == (3, 30)
    assert standing.requests == 3


async def test_the_requests_of_a_key_count_too(who: Principal) -> None:
    key = KeyLimits(who.chain_id or new_id(), "Billing", requests_per_minute=1)
    caller = Principal(who.user_id, who.organization_id, new_id(), key_limits=key)
    await services.announce(caller, limits(), {new_id(): Want(10), new_id(): Want(10)})  # one call
    with pytest.raises(RequestsPerMinuteExceeded, match="The API key"):
        await services.announce(caller, limits(), {new_id(): Want(10)})


async def test_what_starts_reserves_in_everything_once(who: Principal) -> None:
    await known(who)
    plan, id = limits(budget(1000)), new_id()
    await services.announce(who, plan, {id: Want(100, 400)})
    for _ in range(3):  # another runner after a crash
        await services.start(who, plan, id, Want(100, 400), TTL)
    standing = await plan_standing(who, plan)
    assert (standing.tokens, standing.running) == (100, 1)
    [spending] = await selectors.spendings(who.organization_id, plan.budgets)
    assert (spending.taken, spending.reserved) == (400, 400)
    assert await services.settle(who.organization_id, id, Used(50, 60, 0))
    assert not await held(who)
    [spending] = await selectors.spendings(who.organization_id, plan.budgets)
    assert (spending.taken, spending.reserved) == (60, 0)


async def test_what_has_no_room_is_refused_when_it_starts(who: Principal) -> None:
    await known(who)
    plan, running = limits(budget(1000)), new_id()
    await services.announce(who, plan, {new_id(): Want(900)})
    await services.start(who, plan, running, Want(900, 700), TTL)
    waiting = new_id()
    await services.announce(who, plan, {waiting: Want(200, 200)})
    with pytest.raises(TokensPerMinuteExceeded) as tokens:
        await services.start(who, plan, waiting, Want(200, 200), TTL)
    assert 0 < (tokens.value.retry_after or 0) <= 7
    with pytest.raises(BudgetExhausted, match="Replies that run hold 700 tokens of it") as budgets:
        await services.start(who, limits(budget(1000), tokens=100_000), waiting, Want(200, 400), TTL)
    assert (budgets.value.retry_after, budgets.value.should_retry) == (1.0, None)
    with pytest.raises(TooManyReplies):
        await services.start(who, limits(tokens=100_000, concurrent=1), waiting, Want(200), TTL)
    assert await held(who) == 1


async def test_a_budget_that_is_spent_refuses_at_once_and_one_that_is_held_does_not(who: Principal) -> None:
    await known(who, tokens=600)
    plan = limits(budget(1000))
    await services.start(who, plan, new_id(), Want(10, 300), TTL)
    await services.announce(who, plan, {new_id(): Want(10, 400)})  # 100 are left, and 300 are only held
    with pytest.raises(BudgetExhausted, match="There will be more on") as spent:
        await services.announce(who, plan, {new_id(): Want(10, 401)})
    assert spent.value.should_retry is False
    with pytest.raises(BudgetExhausted, match="There will be more on"):
        await services.announce(who, plan, {new_id(): Want(10, 200), new_id(): Want(10, 201)})


async def test_what_never_fits_is_refused_at_once(who: Principal) -> None:
    await known(who)
    with pytest.raises(BudgetExhausted, match="allows 1,000 tokens a month"):
        await services.announce(who, limits(budget(1000)), {new_id(): Want(10, 1001)})
    with pytest.raises(RequestExceedsLimit, match="allows 1,000 a minute"):
        await services.announce(who, limits(), {new_id(): Want(1001)})
    many = {new_id(): Want(700) for _ in range(7)}  # each by itself does
    await services.announce(who, limits(), many)


@pytest.mark.parametrize(("change", "refusal"), [({"missing": True}, NoPlan), ({"stopped": "Back at one."}, Stopped)])
async def test_nothing_is_announced_or_started_where_nothing_is_accepted(
    who: Principal, change: dict[str, object], refusal: type[Exception]
) -> None:
    plan = PlanLimits("test", "free", 1000, 2, **change)  # type: ignore[arg-type]
    with pytest.raises(refusal):
        await services.announce(who, plan, {new_id(): Want(1)})
    with pytest.raises(refusal):
        await services.start(who, plan, new_id(), Want(1), TTL)


async def test_one_that_never_started_is_settled_without_a_trace(who: Principal) -> None:
    await known(who, tokens=100)
    plan, id = limits(budget(1000)), new_id()
    await services.announce(who, plan, {id: Want(100, 400)})
    before = await async_client().hgetall(f"{quota_prefix(who.organization_id)}:counted")
    for _ in range(2):
        assert await services.settle(who.organization_id, id, Used(0))
    assert await async_client().hgetall(f"{quota_prefix(who.organization_id)}:counted") == before
    standing = await plan_standing(who, plan)
    assert (standing.tokens, standing.running, standing.requests) == (0, 0, 1)


async def test_one_that_is_settled_reserves_nothing_when_a_late_runner_starts_it(who: Principal) -> None:
    plan, id = limits(), new_id()
    await services.announce(who, plan, {id: Want(100)})
    assert await services.settle(who.organization_id, id, Used(0))
    await services.start(who, plan, id, Want(100), TTL)
    assert await held(who) == 0


async def test_a_hundred_that_start_at_once_take_no_more_than_there_is(who: Principal) -> None:
    await known(who)
    plan = limits(budget(1000), tokens=100_000, concurrent=100, requests=None)

    async def starts(id: UUID) -> bool:
        try:
            await services.start(who, plan, id, Want(10, 90), TTL)
        except BudgetExhausted:
            return False
        return True

    assert sum(await asyncio.gather(*(starts(new_id()) for _ in range(100)))) == 11


async def test_a_budget_of_a_day_that_is_over_says_so(who: Principal) -> None:
    """It was sent before midnight, and starts after it: its own day has no room, and never will have."""
    yesterday = day_number(today()) - 1
    counted = {"org tokens": 1, f"org tokens {yesterday}": 990, "org tokens held": 0}
    await async_client().hset(f"{quota_prefix(who.organization_id)}:counted", mapping=counted)
    id = UUID(int=first_id(midnight(today())).int - 2**80 * 1000)
    with pytest.raises(BudgetExhausted, match="Send it again") as refusal:
        await services.start(who, limits(budget(1000, days=1)), id, Want(10, 50), TTL)
    assert (refusal.value.retry_after, refusal.value.should_retry) == (None, None)
    await services.start(who, limits(budget(1000, days=1)), new_id(), Want(10, 50), TTL)
