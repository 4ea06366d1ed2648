"""What Redis counts for budgets: known again, from the ledger and open requests, after it has been lost."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from django.db import DatabaseError

from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.database import run_db
from chatsite.errors import Unavailable
from chatsite.ids import new_id
from chatsite.redis import async_client, sync_client
from quotas import budgets, counters, selectors, services
from quotas.budgets import BudgetLimit, Unit
from quotas.counters import Open
from quotas.errors import BudgetExhausted
from quotas.protocol import Used
from tests.quotas.budget_calls import USD, KnownRequests, caller, of_org, plan, reserve, settle, taken, write

pytestmark = pytest.mark.usefixtures("database", "known_requests")


async def test_lost_counters_are_read_from_ledger_and_open_requests(known_requests: KnownRequests) -> None:
    who, limit = caller(), of_org(tokens=1000)
    await settle(who, await reserve(who, plan(limit), 300), 250)
    running = await reserve(who, plan(limit), 400)
    known_requests.open[who.organization_id] = [Open(running, who.user_id, None, 400, 0)]
    sync_client().flushall()
    assert await taken(who, limit) == 650
    with pytest.raises(BudgetExhausted):
        await reserve(who, plan(limit), 351)
    await settle(who, running, 100)
    assert await taken(who, limit) == 350
    await reserve(who, plan(limit), 650)


async def test_after_a_restart_of_redis_what_it_counted_last_may_be_missing_and_is_read_anew(
    known_requests: KnownRequests,
) -> None:
    who, limit = caller(), of_org(tokens=100)
    counted = f"{selectors.quota_prefix(who.organization_id)}:counted"
    await counters.forget_where_redis_restarted()
    assert await taken(who, limit) == 0
    before = await async_client().hgetall(counted)  # type: ignore[misc]
    spent = await reserve(who, plan(limit), 60)
    await settle(who, spent, 60)
    await counters.forget_where_redis_restarted()  # it is the same server still
    assert await taken(who, limit) == 60
    await async_client().delete(counted)
    await async_client().hset(counted, mapping=before)  # type: ignore[misc]
    await async_client().set(counters._COUNTED_IN, "an earlier run")
    await counters.forget_where_redis_restarted()
    with pytest.raises(BudgetExhausted):
        await reserve(who, plan(limit), 41)


async def test_what_was_ended_but_not_released_is_counted_once(known_requests: KnownRequests) -> None:
    who, limit = caller(), of_org(tokens=1000)
    ended = await reserve(who, plan(limit), 400)
    await run_db(write, who, ended, 250, Decimal(0))
    known_requests.ended[who.organization_id] = {ended: 250}
    for lose in (sync_client().flushall, lambda: counters.forget(who.organization_id)):
        lose()
        assert await taken(who, limit) == 250
        assert await services.settle(who.organization_id, ended, Used(0, 250, 0))
        assert await taken(who, limit) == 250


async def test_a_budget_that_is_new_counts_what_was_before_it_and_what_runs(known_requests: KnownRequests) -> None:
    chain = new_id()
    key = KeyLimits(chain, "Billing")
    who = Principal(new_id(), new_id(), new_id(), key_limits=key)
    await settle(who, await reserve(who, plan(), 300), 250)
    running = await reserve(who, plan(), 400)
    mine = BudgetLimit("user", budgets.member(who.user_id), "You", Unit.TOKENS, 1000)
    assert await taken(who, mine) == 650
    of_key = BudgetLimit("key", budgets.key(chain), "Key", Unit.COST, USD)
    assert await taken(who, of_key) == 0
    await settle(who, running, 100, "0.25")
    assert (await taken(who, mine), await taken(who, of_key)) == (350, USD // 4)


@pytest.mark.parametrize("taken_away", [False, True])
async def test_what_a_key_uses_while_no_budget_of_it_is_known_counts_when_one_is(taken_away: bool) -> None:
    """Taken away and given again, or new and not yet known to the process that reserves: the counter is there."""
    chain = new_id()
    of_key = BudgetLimit("key", budgets.key(chain), "Key", Unit.TOKENS, 1000)
    who = replace(caller(), api_key_id=new_id(), chain_id=chain)
    if taken_away:
        await settle(who, await reserve(who, plan(of_key), 300), 250)
    else:
        assert await taken(who, of_key) == 0
    await settle(who, await reserve(who, plan(), 300), 250)
    running = await reserve(replace(who, api_key_id=new_id()), plan(), 400)  # the key that replaced it
    assert await taken(who, of_key) == 650 + 250 * taken_away
    await settle(who, running, 100)
    assert await taken(who, of_key) == 350 + 250 * taken_away


async def test_nothing_billed_is_settled_while_the_ledger_is_read() -> None:
    who, limit = caller(), of_org(tokens=1000)
    running, other = await reserve(who, plan(limit), 400), await reserve(who, plan(limit), 100)
    await async_client().set(f"{selectors.quota_prefix(who.organization_id)}:loading", "token", px=60_000)
    assert not await services.settle(who.organization_id, running, Used(0, 100, 0))
    assert await services.settle(who.organization_id, other, services.NOTHING)  # that changes no sum
    await async_client().delete(f"{selectors.quota_prefix(who.organization_id)}:loading")
    assert await taken(who, limit) == 400


async def test_while_the_ledger_cannot_be_read_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise DatabaseError("away")

    who, limit = caller(), of_org(tokens=1000)
    with monkeypatch.context() as patch:
        patch.setattr(counters, "_snapshot", broken)
        with pytest.raises(Unavailable) as refused:
            await reserve(who, plan(limit), 1)
    assert refused.value.retry_after == 2
    await reserve(who, plan(limit), 1)  # and the way is free again


async def test_many_who_need_lost_counters_at_once_read_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    who, limit, read = caller(), of_org(tokens=1000), []
    snapshot = counters._snapshot
    monkeypatch.setattr(counters, "_snapshot", lambda *given: read.append(1) or snapshot(*given))
    await asyncio.gather(*(reserve(who, plan(limit), 10) for _ in range(20)))
    assert len(read) == 1
    assert await taken(who, limit) == 200


async def test_a_settlement_that_comes_after_it_was_forgotten_makes_the_ledger_be_read() -> None:
    who, limit = caller(), of_org(tokens=1000)
    request = await reserve(who, plan(limit), 400)
    await settle(who, request, 250)
    await async_client().delete(f"{selectors.quota_prefix(who.organization_id)}:settled:{request}")  # minutes later
    assert await services.settle(who.organization_id, request, Used(0, 250, 0))
    assert await taken(who, limit) == 250
