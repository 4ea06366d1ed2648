"""Budgets: reserved in one step with everything else, and exact."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from chatsite.accounts.protocol import KeyLimits, MemberLimits, Principal
from chatsite.database import run_db
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import first_id, new_id
from quotas import budgets, selectors, services
from quotas.budgets import Unit
from quotas.errors import BudgetExhausted, RequestsPerMinuteExceeded, Stopped
from quotas.models import Budget
from quotas.money import amount, units
from quotas.periods import Period, day_of, today
from quotas.protocol import Used, Want
from quotas.services import Correction
from tests.quotas.budget_calls import TTL, USD, caller, of_org, plan, reserve, settle, taken, write
from tests.quotas.limit_calls import expire
from tests.quotas.moments import made

pytestmark = pytest.mark.usefixtures("database", "known_requests")


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
        await run_db(write, who, made(datetime.now(UTC) - timedelta(days=age)), tokens, Decimal(0))
    await reserve(who, plan(limit), 20)
    with pytest.raises(BudgetExhausted, match="100 tokens in 7 days") as refused:
        await reserve(who, plan(limit), 30)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0) + timedelta(days=1)
    assert refused.value.retry_after == pytest.approx((midnight - datetime.now(UTC)).total_seconds(), abs=2)


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
    await expire(who.organization_id, late)
    await reserve(who, plan(limit), 70)
    await settle(who, late, 25)
    assert await taken(who, limit) == 95
    assert await services.settle(who.organization_id, late, Used(0, 25, 0))
    assert await taken(who, limit) == 95


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
