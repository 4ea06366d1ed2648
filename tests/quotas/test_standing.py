"""Where limits stand, as it is told: what has expired is in no figure, though nobody has swept it yet."""

from typing import Any

import pytest

from chatsite.accounts.protocol import Principal
from chatsite.ids import new_id
from chatsite.redis import sync_client
from quotas import budgets, selectors, services
from quotas.budgets import BudgetLimit, Unit
from quotas.protocol import PlanLimits, Want
from quotas.scripts import quota_prefix

pytestmark = pytest.mark.usefixtures("database")
TTL = 60.0


def stored(prefix: str) -> dict[bytes, Any]:
    client: Any = sync_client()
    return {key: client.dump(key) for key in client.scan_iter(f"{prefix}*")}


async def test_s25_what_a_dead_process_had_reserved_is_neither_taken_nor_reserved_nor_running() -> None:
    who, prefix = Principal(new_id(), organization := new_id()), quota_prefix(organization)
    limits = (
        BudgetLimit("organization", "org", "Month", Unit.TOKENS, 10_000),
        BudgetLimit("organization", "org", "Week", Unit.COST, 10_000, days=7),
        BudgetLimit("user", budgets.member(who.user_id), "Ada", Unit.TOKENS, 10_000, days=1),
    )
    plan = PlanLimits("test", "paid", 1_000_000, 10, budgets=limits)

    async def told() -> tuple[list[tuple[int, int]], int, int]:
        [standing] = (await selectors.remaining(who, plan)).standings
        spendings = await selectors.spendings(organization, limits)
        return [(each.taken, each.reserved) for each in spendings], standing.running, round(standing.tokens, -5)

    used, runs, dead = [new_id() for _ in range(3)]
    replies = {used: Want(0, 40, 4), runs: Want(100_000, 500, 50), dead: Want(300_000, 9000, 900)}
    await services.reserve(who, plan, replies, TTL)
    await services.settle(organization, used, services.Used(0, 30, 3))
    assert await told() == ([(9530, 9500), (953, 950), (9530, 9500)], 2, 400_000)
    sync_client().zadd(f"{prefix}:live", {str(dead): 1})
    before = stored(prefix)
    assert await told() == ([(530, 500), (53, 50), (530, 500)], 1, 100_000)
    assert stored(prefix) == before, "reading writes nothing"
    await services.reserve(who, plan, {new_id(): Want(0, 1000, 100)}, TTL)  # sweeps
    assert await told() == ([(1530, 1500), (153, 150), (1530, 1500)], 2, 100_000)
    await services.settle(organization, dead, services.Used(0, 7, 1))  # it turns up after all
    assert (await told())[0] == [(1537, 1500), (154, 150), (1537, 1500)]
