"""Budgets: reserved in one step with everything else, exact, and known again after Redis has lost them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError

from chatsite.accounts.protocol import KeyLimits, MemberLimits, Principal
from chatsite.database import run_db
from chatsite.errors import InvalidInput, NotFound, Unavailable
from chatsite.ids import first_id, new_id
from chatsite.redis import async_client, sync_client
from quotas import budgets, counters, selectors, services
from quotas.budgets import BudgetLimit, Unit
from quotas.counters import Open, Requests
from quotas.errors import BudgetExhausted, RequestsPerMinuteExceeded, Stopped
from quotas.models import Budget, LedgerEntry
from quotas.money import amount, units
from quotas.periods import Period, day_of, today
from quotas.protocol import PlanLimits, Prices, Used, Want
from quotas.services import Correction

pytestmark = pytest.mark.usefixtures("database")
TTL = 60.0
USD = 10**10
PRICES = Prices(Decimal("1"), Decimal("0.1"), Decimal("10"))


@dataclass
class Site:
    """What PostgreSQL would say of the requests of each organization."""

    open: dict[UUID, list[Open]]
    ended: dict[UUID, dict[UUID, int]]

    def requests(self, organization_id: UUID) -> Requests:
        return Requests(self.open.get(organization_id, []), self.ended.get(organization_id, {}))


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site({}, {})
    monkeypatch.setattr(counters, "_requests_of", lambda: found.requests)
    return found


def plan(*limits: BudgetLimit, tokens: int = 10_000_000, concurrent: int = 10_000, **more: Any) -> PlanLimits:
    return PlanLimits("test", "paid", tokens, concurrent, budgets=limits, **more)


def of_org(cost: str | None = None, tokens: int | None = None, *, days: int = 0, hard: bool = True) -> BudgetLimit:
    unit, limit = (Unit.COST, units(Decimal(cost))) if cost is not None else (Unit.TOKENS, tokens or 0)
    return BudgetLimit("organization", "org", "The budget of your organization", unit, limit, days, hard)


def caller(organization: UUID | None = None, **more: Any) -> Principal:
    return Principal(new_id(), organization or new_id(), **more)


async def reserve(who: Principal, limits: PlanLimits, tokens: int = 0, cost: str = "0", id: UUID | None = None) -> UUID:
    request = id or new_id()
    wanted = Want(0, tokens, units(Decimal(cost)))
    await services.reserve(who, limits, {request: wanted}, TTL)
    return request


async def settle(who: Principal, request: UUID, tokens: int = 0, cost: str = "0") -> None:
    """The ledger first, as always; then Redis."""
    await run_db(write, who, request, tokens, Decimal(cost))
    assert await services.settle(who.organization_id, request, Used(0, tokens, units(Decimal(cost))))


def write(who: Principal, request: UUID, tokens: int, cost: Decimal) -> None:
    LedgerEntry.objects.create(
        request_id=request, organization_id=who.organization_id, user_id=who.user_id, api_key_id=who.api_key_id,
        model="m", input=0, cached=0, output=tokens, cost=cost, outcome="succeeded", source="engine",
    )  # fmt: skip


async def taken(who: Principal, limit: BudgetLimit) -> int:
    [found] = await selectors.spendings(who.organization_id, [limit])
    return found.taken


async def test_a_hard_budget_has_room_for_what_is_made_instead_of_another() -> None:
    who, limits = caller(), plan(of_org("1.00"), of_org(tokens=100, days=7))
    await reserve(who, limits, tokens=20, cost="0.30")
    waiting, other = await reserve(who, limits, tokens=60, cost="0.50"), new_id()
    with pytest.raises(BudgetExhausted):
        await reserve(who, limits, tokens=30, cost="0.30")
    with pytest.raises(BudgetExhausted) as refused:
        await services.reserve(who, limits, {other: Want(0, 10, units(Decimal("0.80")))}, TTL, given_up=waiting)
    assert "0.70 USD is left, and this may cost 0.80 USD" in refused.value.message
    assert "hold 0.30 USD of it" in refused.value.message
    with pytest.raises(BudgetExhausted):
        await services.reserve(who, limits, {other: Want(0, 81, 0)}, TTL, given_up=waiting)
    await services.reserve(who, limits, {other: Want(0, 80, units(Decimal("0.70")))}, TTL, given_up=waiting)
    await settle(who, waiting)
    assert await taken(who, limits.budgets[0]) == units(Decimal("1.00"))


async def test_what_is_left_and_what_it_may_cost_are_told_apart() -> None:
    who, limits = caller(), plan(of_org("0.05"))
    await reserve(who, limits, cost="0.0436")
    with pytest.raises(BudgetExhausted, match=r"0\.0064 USD is left, and this may cost 0\.0072 USD"):
        await reserve(who, limits, cost="0.0072")
    await reserve(who, limits, cost="0.0064")
    who, limits = caller(), plan(of_org("0.50"))
    await reserve(who, limits, cost="0.2999")
    with pytest.raises(BudgetExhausted, match=r"0\.20 USD is left, and this may cost 0\.21 USD"):
        await reserve(who, limits, cost="0.2002")
    with pytest.raises(BudgetExhausted, match=r"This may cost 0\.51 USD, and .* allows 0\.50 USD a month"):
        await reserve(who, limits, cost="0.5001")


async def test_a_hard_budget_counts_what_is_reserved_and_what_is_spent() -> None:
    who, limits = caller(), plan(of_org("1.00"))
    first = await reserve(who, limits, cost="0.60")
    with pytest.raises(BudgetExhausted) as refused:
        await reserve(who, limits, cost="0.50")
    assert refused.value.message == (
        "The budget of your organization allows 1.00 USD a month; 0.40 USD is left, and this may cost 0.50 USD. "
        "Replies that run hold 0.60 USD of it."
    )
    assert refused.value.should_retry is None
    await settle(who, first, cost="0.10")
    await reserve(who, limits, cost="0.50")
    await reserve(who, limits, cost="0.40")
    assert await taken(who, limits.budgets[0]) == USD


async def test_a_spent_budget_says_when_there_will_be_more() -> None:
    who, limits = caller(), plan(of_org(tokens=1000))
    await settle(who, await reserve(who, limits, 990), 990)
    with pytest.raises(BudgetExhausted) as refused:
        await reserve(who, limits, 11)
    error, end = refused.value, Period.month(today()).end
    assert error.message == (
        "The budget of your organization allows 1,000 tokens a month; 10 tokens are left, and this may take 11 tokens. "
        f"There will be more on {end.day} {end:%B %Y} (UTC)."
    )
    assert (error.code, error.status, error.should_retry) == ("budget_exhausted", 429, False)
    left = datetime(end.year, end.month, end.day, tzinfo=UTC) - datetime.now(UTC)
    assert error.retry_after == pytest.approx(left.total_seconds(), abs=2)
    await reserve(who, limits, 10)


async def test_more_than_a_whole_budget_is_refused_at_once() -> None:
    with pytest.raises(
        BudgetExhausted, match=r"This may cost 2\.00 USD, and the budget of your organization allows 1\.00"
    ):
        await reserve(caller(), plan(of_org("1.00")), cost="2.00")


async def test_a_soft_budget_refuses_nothing_and_is_counted() -> None:
    who, soft = caller(), of_org("0.01", hard=False)
    await settle(who, await reserve(who, plan(soft), cost="5"), cost="5")
    await reserve(who, plan(soft), cost="5")
    assert await taken(who, soft) == 10 * USD


@pytest.mark.parametrize("scope", ["plan", "user", "key"])
async def test_each_scope_has_a_budget_and_is_named(scope: str) -> None:
    user, chain = new_id(), new_id()
    key, member = KeyLimits(chain, "Billing"), MemberLimits(user, "Ada")
    limits = plan(*budgets.limits_of("plan", "org", "The free plan", 100 if scope == "plan" else None, None))
    if scope == "key":
        key = replace(key, monthly_tokens=100)
    if scope == "user":
        member = replace(member, monthly_tokens=100)
    who = Principal(user, new_id(), new_id(), key_limits=key, member_limits=member)
    other = replace(who, user_id=new_id(), key_limits=None, member_limits=None)
    await reserve(who, limits, 80)
    titles = {"plan": "The free plan", "user": "The limit of Ada", "key": "The API key “Billing”"}
    with pytest.raises(BudgetExhausted, match=titles[scope]):
        await reserve(who, limits, 30)
    if scope == "plan":
        with pytest.raises(BudgetExhausted):
            await reserve(other, limits, 30)
    else:
        await reserve(other, limits, 30)


async def test_a_refusal_anywhere_takes_nothing_anywhere() -> None:
    who, hard = caller(), of_org(tokens=1000)
    limits = plan(hard, requests_per_minute=1)
    await reserve(who, limits, 10)
    with pytest.raises(RequestsPerMinuteExceeded):
        await reserve(who, limits, 10)
    assert await taken(who, hard) == 10
    generous = plan(of_org(tokens=15))
    before = (await selectors.remaining(who, generous)).standings
    with pytest.raises(BudgetExhausted):
        await reserve(who, generous, 10)
    assert (await selectors.remaining(who, generous)).standings[0].running == before[0].running


async def test_a_rolling_budget_forgets_its_oldest_days() -> None:
    who, limit = caller(), of_org(tokens=100, days=7)
    for age, tokens in [(7, 1000), (6, 50), (1, 20), (0, 10)]:
        await run_db(write, who, at(age), tokens, Decimal(0))
    await reserve(who, plan(limit), 20)
    with pytest.raises(BudgetExhausted, match="100 tokens in 7 days") as refused:
        await reserve(who, plan(limit), 30)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0) + timedelta(days=1)
    assert refused.value.retry_after == pytest.approx((midnight - datetime.now(UTC)).total_seconds(), abs=2)


def at(days_ago: int) -> UUID:
    """An id of a request of that day."""
    return UUID(int=first_id(datetime.now(UTC) - timedelta(days=days_ago)).int | new_id().int & (1 << 64) - 1)


@pytest.mark.parametrize(("day", "first", "last"), [
    (datetime(2027, 2, 28, 23, 59, 59, 999000, tzinfo=UTC), "2027-02-01", "2027-02-28"),
    (datetime(2028, 2, 29, 12, tzinfo=UTC), "2028-02-01", "2028-02-29"),
    (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), "2026-12-01", "2026-12-31"),
    (datetime(2027, 1, 1, tzinfo=UTC), "2027-01-01", "2027-01-31"),
])  # fmt: skip
async def test_a_request_belongs_to_the_month_in_which_it_was_accepted(day: datetime, first: str, last: str) -> None:
    """Its reservation, its settlement and its ledger row, whenever it is settled: here all is settled now."""
    who, limit = caller(), of_org(tokens=100)
    request = UUID(int=first_id(day).int | 7)
    period = Period.month(day_of(request))
    assert (str(period.start), str(period.end - timedelta(days=1))) == (first, last)
    await reserve(who, plan(limit), 60, id=request)
    for other in (day + timedelta(days=31), day - timedelta(days=31)):
        await reserve(who, plan(limit), 100, id=UUID(int=first_id(other).int | 7))
    with pytest.raises(BudgetExhausted):
        await reserve(who, plan(limit), 41, id=UUID(int=first_id(day).int | 8))
    await settle(who, request, 40)
    await reserve(who, plan(limit), 60, id=UUID(int=first_id(day).int | 9))
    assert (await run_db(selectors.spent, who.organization_id, period)).tokens == 40


async def test_expired_reservations_come_back_and_are_charged_once_if_they_turn_up() -> None:
    who, limit = caller(), of_org(tokens=100)
    late = await reserve(who, plan(limit), 80)
    await async_client().zadd(f"{selectors.quota_prefix(who.organization_id)}:live", {str(late): 1})
    await reserve(who, plan(limit), 70)
    await settle(who, late, 25)
    assert await taken(who, limit) == 95
    assert await services.settle(who.organization_id, late, Used(0, 25, 0))
    assert await taken(who, limit) == 95


# After Redis has lost what was counted


async def test_lost_counters_are_read_from_ledger_and_open_requests(there: Site) -> None:
    who, limit = caller(), of_org(tokens=1000)
    await settle(who, await reserve(who, plan(limit), 300), 250)
    running = await reserve(who, plan(limit), 400)
    there.open[who.organization_id] = [Open(running, who.user_id, None, 400, 0)]
    sync_client().flushall()
    assert await taken(who, limit) == 650
    with pytest.raises(BudgetExhausted):
        await reserve(who, plan(limit), 351)
    await settle(who, running, 100)
    assert await taken(who, limit) == 350
    await reserve(who, plan(limit), 650)


async def test_after_a_restart_of_redis_what_it_counted_last_may_be_missing_and_is_read_anew(there: Site) -> None:
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


async def test_what_was_ended_but_not_released_is_counted_once(there: Site) -> None:
    who, limit = caller(), of_org(tokens=1000)
    ended = await reserve(who, plan(limit), 400)
    await run_db(write, who, ended, 250, Decimal(0))
    there.ended[who.organization_id] = {ended: 250}
    for lose in (sync_client().flushall, lambda: counters.forget(who.organization_id)):
        lose()
        assert await taken(who, limit) == 250
        assert await services.settle(who.organization_id, ended, Used(0, 250, 0))
        assert await taken(who, limit) == 250


async def test_a_budget_that_is_new_counts_what_was_before_it_and_what_runs(there: Site) -> None:
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


# Refunds and corrections


async def test_a_refund_is_a_row_and_the_budget_has_it_back() -> None:
    who, limit = caller(), of_org("1.00")
    request = await reserve(who, plan(limit), cost="0.90")
    await settle(who, request, 9, "0.90")
    row = await run_db(services.refund, request, Decimal("0.4"))
    assert (row.kind, row.seq, row.cost, row.output) == ("refund", 0, Decimal("-0.4"), 0)
    assert (await run_db(services.refund, request, Decimal("0.1"))).seq == 1
    assert amount(await taken(who, limit)) == Decimal("0.4")
    await reserve(who, plan(limit), cost="0.60")
    spent = await run_db(selectors.spent, who.organization_id, Period.month(today()))
    assert (spent.tokens, spent.cost) == (9, Decimal("0.4"))
    for wrong in (Decimal("0.5"), Decimal(0), Decimal("-1"), Decimal("1e-11")):
        with pytest.raises(InvalidInput):
            await run_db(services.refund, request, wrong)
    with pytest.raises(NotFound):
        await run_db(services.refund, new_id(), Decimal(1))


async def test_a_correction_takes_back_no_more_than_there_was() -> None:
    who, limit = caller(), of_org(tokens=1000)
    request = await reserve(who, plan(limit), 900)
    await settle(who, request, 900, "0.9")
    await run_db(services.correct, request, Correction(output=-400, cost=Decimal("-0.4")))
    assert await taken(who, limit) == 500
    with pytest.raises(InvalidInput):
        await run_db(services.correct, request, Correction(output=-501))
    await run_db(services.correct, request, Correction(output=5))
    assert await taken(who, limit) == 505


# From the database


async def test_budgets_of_plan_organization_member_and_key_apply(make_person: Callable[..., Any]) -> None:
    person = await run_db(make_person, "finn@example.com", plan="demo")
    organization = person.organization
    await run_db(lambda: Budget.objects.create(organization=organization, limit_tokens=1000))
    await run_db(
        lambda: Budget.objects.create(
            organization=organization, scope="key", subject_id=person.key.chain_id, period="rolling", days=7,
            limit_cost=Decimal("2.50"),
        )
    )  # fmt: skip
    selectors.known_plans.clear()
    limits = await selectors.aplan_of(organization.id)
    found = limits.budgets_of(person.principal)
    assert [(each.scope, each.unit, each.limit, each.days) for each in found] == [
        ("organization", Unit.TOKENS, 1000, 0),
        ("key", Unit.COST, 25_000_000_000, 7),
    ]
    assert [each.scope for each in limits.budgets_of(person.session_principal)] == ["organization"]
    with pytest.raises(BudgetExhausted, match=r"the budget of this API key allows 2\.50 USD in 7 days"):
        await reserve(person.principal, limits, cost="2.51")
    await reserve(person.principal, limits, 10, cost="2.40")
    with pytest.raises(BudgetExhausted):
        await reserve(person.principal, limits, 10, cost="0.20")
    await reserve(person.session_principal, limits, 10, cost="0.20")
    data = await selectors.quota(person.principal, limits)
    assert data["plan"] == "demo"
    assert [(each["scope"], each["kind"], each["limit"], each["remaining"]) for each in data["limits"]] == [
        ("plan", "tokens_per_minute", 10_000_000, 10_000_000),
        ("plan", "concurrent", 128, 126),
        ("organization", "budget", 1000, 980),
        ("key", "budget", "2.5", "0.1"),
    ]
    assert data["limits"][2]["reset"] == f"{Period.month(today()).end}T00:00:00Z"


async def test_a_stop_refuses_everybody_or_one_organization(make_person: Callable[..., Any]) -> None:
    finn, ada = [await run_db(make_person, f"{name}@example.com") for name in ("finn", "ada")]

    async def accepted(person: Any) -> bool:
        limits = await selectors.aplan_of(person.organization.id)
        try:
            await reserve(person.principal, limits)
        except Stopped as error:
            assert (error.status, error.code) == (503, "stopped")
            assert error.retry_after
            return False
        return True

    await run_db(services.stop, finn.organization.id)
    assert (await accepted(finn), await accepted(ada)) == (False, True)
    await run_db(services.stop, None, "Back at noon.")
    await run_db(services.stop, None, "Back at one.")
    assert (await accepted(finn), await accepted(ada)) == (False, False)
    assert (await selectors.aplan_of(ada.organization.id)).stopped == "Back at one."
    assert await run_db(services.resume, finn.organization.id)
    assert await run_db(services.resume)
    assert not await run_db(services.resume)
    assert (await accepted(finn), await accepted(ada)) == (True, True)
