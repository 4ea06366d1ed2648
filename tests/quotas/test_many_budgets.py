"""One reservation against many budgets and of many replies: what it costs Redis, and that it stays exact."""

from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from chatsite.accounts.protocol import Principal
from chatsite.ids import first_id, new_id
from chatsite.redis import sync_client
from quotas import services
from quotas.budgets import BudgetLimit, Unit
from quotas.errors import BudgetExhausted
from quotas.periods import midnight, today
from quotas.protocol import PlanLimits, Want

pytestmark = pytest.mark.usefixtures("database")
TTL, REPLIES = 60.0, 128
LIMIT = 10**12
FIFTY = tuple(
    BudgetLimit("organization", "org", f"{days} days", unit, LIMIT, days) for days in range(66, 91) for unit in Unit
)  # of an organization, all that the page allows


def plan(*limits: BudgetLimit) -> PlanLimits:
    return PlanLimits("test", "paid", 1_000_000_000, 10_000, budgets=limits)


def replies(most: int, cost: int = 0, count: int = REPLIES) -> dict[UUID, Want]:
    return {new_id(): Want(0, most, cost) for _ in range(count)}


def calls() -> dict[str, int]:
    """So often Redis has run each of its commands, also those of scripts."""
    found: Any = sync_client().info("commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}


async def commands_of(who: Principal, limits: PlanLimits, wanted: dict[UUID, Want]) -> dict[str, int]:
    before = calls()
    with suppress(BudgetExhausted):
        await services.reserve(who, limits, wanted, TTL)
    return {name: count - before.get(name, 0) for name, count in calls().items() if count > before.get(name, 0)}


@pytest.mark.parametrize("most", [1, LIMIT // REPLIES])
async def test_a_call_of_128_replies_reads_each_counter_once_for_all_of_50_budgets(most: int) -> None:
    """And so it is where it is refused."""
    who = Principal(new_id(), new_id())
    await services.reserve(who, plan(*FIFTY), replies(1, count=1), TTL)  # the counters are known from now on
    found = await commands_of(who, plan(*FIFTY), replies(most))
    without = await commands_of(who, plan(), replies(1))
    assert ("hincrby" in found) == (most == 1), "the other is refused"
    assert found["hmget"] <= without["hmget"] + 3
    assert found.get("hincrby", 0) <= 4
    assert sum(found.values()) <= 2 * REPLIES + 30


async def test_many_replies_are_refused_or_taken_together() -> None:
    limits = (
        BudgetLimit("organization", "org", "The week", Unit.TOKENS, 1000, days=7),
        BudgetLimit("organization", "org", "The fortnight", Unit.TOKENS, 1500, days=14),
        BudgetLimit("organization", "org", "The month", Unit.COST, 10**12),
    )
    who = Principal(new_id(), new_id())
    await services.reserve(who, plan(*limits), replies(100, count=7), TTL)
    with pytest.raises(BudgetExhausted, match="300 tokens are left, and this may take 301 tokens"):
        await services.reserve(who, plan(*limits), replies(100, count=2) | replies(101, count=1), TTL)
    await services.reserve(who, plan(*limits), replies(100, count=3), TTL)
    with pytest.raises(BudgetExhausted, match="0 tokens are left"):
        await services.reserve(who, plan(*limits), replies(1, count=1), TTL)


@pytest.mark.parametrize(("days", "limit", "fits"), [(2, 110, True), (2, 109, False), (3, 160, True), (3, 159, False)])
async def test_replies_on_both_sides_of_midnight_count_in_their_days(days: int, limit: int, fits: bool) -> None:
    who = Principal(new_id(), new_id())
    budget = BudgetLimit("organization", "org", "It", Unit.TOKENS, limit, days)
    before, early, late = [
        UUID(int=first_id(midnight(today() - timedelta(days=ago))).int | new_id().int & (1 << 64) - 1)
        for ago in (2, 1, 0)
    ]
    await services.reserve(who, plan(budget), {before: Want(0, 50, 0)}, TTL)
    wanted = {early: Want(0, 30, 0), late: Want(0, 80, 0)}
    if fits:
        await services.reserve(who, plan(budget), wanted, TTL)
    else:
        with pytest.raises(BudgetExhausted):
            await services.reserve(who, plan(budget), wanted, TTL)
