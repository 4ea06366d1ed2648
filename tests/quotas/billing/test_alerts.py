"""Alerts of budgets: by mail, once for each threshold, to those who see the billing."""

import asyncio
import smtplib
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from redis.exceptions import ConnectionError as RedisAway

from chatsite.accounts.models import Membership
from chatsite.ids import new_id
from chatsite.redis import close_async_client
from quotas import periods
from quotas.billing import alerts, tasks
from quotas.billing.models import BudgetAlert
from quotas.models import Budget, Plan
from quotas.protocol import Want
from quotas.selectors import known_plans, plan_of
from quotas.services import reserve, subscribe
from tests.chatsite.organizations import at_once, make_organization
from tests.conftest import Person
from tests.quotas.billing.spending import has_budget, spend

pytestmark = pytest.mark.django_db(transaction=True)


def told() -> list[tuple[str, list[str]]]:
    """Subjects and receivers of the mails since the last look."""
    found = [(each.subject, each.to) for each in mail.outbox]
    mail.outbox.clear()
    return found


def run() -> list[str]:
    tasks.check_budgets()
    return [subject.rpartition(": ")[2] for subject, _ in told()]


def test_each_threshold_is_mailed_once(person: Person) -> None:
    has_budget(person.organization, "10")
    assert run() == []
    spend(person, "4.999999")
    assert run() == []
    spend(person, "0.000001")
    assert run() == ["50 % of a budget is spent"]
    assert run() == []
    spend(person, "2.99")
    assert run() == []
    spend(person, "0.01")
    assert run() == ["80 % of a budget is spent"]
    spend(person, "2")
    assert run() == ["100 % of a budget is spent"]
    spend(person, "2")
    assert run() == []
    assert BudgetAlert.objects.count() == 3


def test_of_several_that_are_passed_at_once_the_highest_is_mailed(person: Person) -> None:
    has_budget(person.organization, "10")
    spend(person, "9")
    assert run() == ["80 % of a budget is spent"]
    assert list(BudgetAlert.objects.order_by("threshold").values_list("threshold", flat=True)) == [50, 80]
    assert run() == []


def test_the_mail_says_which_budget_how_much_and_what_happens(person: Person, settings: Any) -> None:
    settings.SITE_URL = "https://chat.example.org"
    has_budget(person.organization, "10")
    has_budget(person.organization, "8", hard=False)
    spend(person, "8.1")
    tasks.check_budgets()
    bodies = sorted(str(each.body) for each in mail.outbox)
    assert "The budget of the organization allows 10.00 USD a month. Of that 8.10 USD (81 %) are spent" in bodies[0]
    first = periods.midnight(periods.Period.month(periods.today()).end)
    assert f"requests are refused until there is more, which is on {first:%Y-%m-%d} (UTC)." in bodies[0]
    assert "This budget only warns" in bodies[1]
    assert all("https://chat.example.org/usage/budgets/" in each for each in bodies)
    assert all(str(person.organization.name) in each for each in bodies)


def test_two_workers_tell_it_once(person: Person) -> None:
    has_budget(person.organization, "10")
    spend(person, "9")
    results = at_once(*[tasks.check_budgets] * 4)
    assert results == [None] * 4
    assert len(told()) == 1
    assert BudgetAlert.objects.count() == 2


def test_those_who_see_the_billing_are_told_and_whose_limit_it_is(make_person: Any) -> None:
    owner, admin, clerk, member = (make_person(f"{name}@example.com") for name in ("owner", "admin", "clerk", "member"))
    acme = make_organization(owner, admin=admin, billing=clerk, member=member)
    subscribe(acme.pk, "demo")
    has_budget(acme, "10")
    Membership.objects.filter(organization=acme, user=member.user).update(monthly_cost=Decimal(5))
    spend(member, "4.5", organization_id=acme.pk, api_key_id=None)
    tasks.check_budgets()
    [(subject, to)] = told()
    assert subject == "Acme: 80 % of a budget is spent"
    assert to == ["clerk@example.com", "member@example.com", "owner@example.com"]
    clerk.user.is_active = False
    clerk.user.save()
    spend(member, "0.5", organization_id=acme.pk, api_key_id=None)
    tasks.check_budgets()
    assert sorted(to for _, to in told()) == [["member@example.com", "owner@example.com"], ["owner@example.com"]]


def test_limits_of_plans_members_and_keys_and_soft_budgets_alert(person: Person) -> None:
    Plan.objects.filter(name="demo").update(monthly_tokens=1_000_000)
    Membership.objects.filter(user=person.user).update(monthly_tokens=2_000_000)
    person.key.monthly_cost = Decimal(1)
    person.key.save()
    has_budget(person.organization, "1", hard=False)
    has_budget(person.organization, "1", scope="key", subject_id=person.key.chain_id, period="rolling", days=7)
    known_plans.clear()
    spend(person, "1")
    tasks.check_budgets()
    found = {(each.scope, each.hard, each.days, each.threshold, each.title) for each in BudgetAlert.objects.all()}
    assert {each for each in found if each[3] != 50 and each[3] != 80} == {
        ("plan", True, 0, 100, "The demo plan"),
        ("key", True, 0, 100, "The API key “test”"),
        ("organization", False, 0, 100, "The budget of the organization"),
        ("key", True, 7, 100, "The budget of the API key “test”"),
    }
    assert ("user", True, 0, 50, f"The limit of {person.user.called}") in found
    assert len(told()) == 5


def test_what_is_reserved_only_does_not_count(person: Person) -> None:
    has_budget(person.organization, "10")

    async def take() -> None:
        await reserve(person.principal, plan_of_person, {new_id(): Want(1, 1, 9 * 10**10)}, 60)
        await close_async_client()

    plan_of_person = plan_of(person.organization.pk)
    asyncio.run(take())
    assert alerts.check(person.organization.pk) == []


def test_a_changed_limit_is_told_anew(person: Person) -> None:
    budget = has_budget(person.organization, "10")
    spend(person, "9")
    assert len(run()) == 1
    budget.limit_cost = Decimal(15)
    budget.save()  # without any new use
    known_plans.clear()
    assert run() == ["50 % of a budget is spent"]


def test_a_new_month_tells_anew_and_rolling_days_once_in_as_many(person: Person, monkeypatch: Any) -> None:
    has_budget(person.organization, "10")
    has_budget(person.organization, "10", period="rolling", days=7)
    spend(person, "6")
    assert len(run()) == 2
    BudgetAlert.objects.filter(days=0).update(
        period_start=periods.Period.month(periods.today()).start - timedelta(days=1)
    )
    BudgetAlert.objects.filter(days=7).update(period_start=periods.today() - timedelta(days=6))
    assert [each.days for each in alerts.check(person.organization.pk)] == [0]
    BudgetAlert.objects.filter(days=7).update(period_start=periods.today() - timedelta(days=7))
    assert [each.days for each in alerts.check(person.organization.pk)] == [7]


def test_spending_of_last_month_is_not_of_this_one(person: Person) -> None:
    """S21: months are those of UTC, by when the request was accepted."""
    has_budget(person.organization, "10")
    begins = periods.midnight(periods.Period.month(periods.today()).start)
    spend(person, "9", at=begins - timedelta(milliseconds=1))
    assert run() == []
    spend(person, "5", at=begins)
    assert run() == ["50 % of a budget is spent"]


def test_a_day_that_ends_meanwhile_is_looked_at_again(person: Person, monkeypatch: Any) -> None:
    has_budget(person.organization, "10")
    spend(person, "9")
    days = iter([periods.today(), periods.today() + timedelta(days=1)])
    monkeypatch.setattr(alerts, "today", lambda: next(days))
    assert alerts.check(person.organization.pk) == []


def test_only_the_active_are_looked_at(person: Person, stranger: Person, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(alerts, "check", lambda organization_id: seen.append(organization_id) or [])
    Budget.objects.all().delete()
    spend(person, "1")
    alerts.check_active()
    assert seen == [person.organization.pk]
    spend(stranger, "1")
    alerts.check_active()
    assert set(seen[1:]) == {person.organization.pk, stranger.organization.pk}  # rows may be committed late: twice
    seen.clear()
    alerts.check_active()
    assert seen == [stranger.organization.pk]
    alerts.check_active()
    alerts.check_active()
    assert seen == [stranger.organization.pk]


def test_a_mail_that_cannot_be_sent_is_sent_later(person: Person, monkeypatch: Any) -> None:
    has_budget(person.organization, "10")
    spend(person, "9")

    def refuse(*_: Any, **__: Any) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.mail.EmailMessage.send", refuse)
        assert run() == []
    assert run() == ["80 % of a budget is spent"]
    assert run() == []


def test_without_redis_everybody_is_looked_at_again(person: Person, monkeypatch: Any) -> None:
    has_budget(person.organization, "10")
    spend(person, "9")

    async def away(*_: Any) -> Any:
        raise RedisAway

    with monkeypatch.context() as patch:
        patch.setattr("quotas.selectors.STANDING", away)
        assert run() == []
        assert run() == []
    assert run() == ["80 % of a budget is spent"]


def test_a_budget_of_somebody_who_is_gone(person: Person) -> None:
    has_budget(person.organization, "10", scope="member", subject_id=new_id())
    has_budget(person.organization, "10", scope="key", subject_id=new_id())
    assert alerts.check(person.organization.pk) == []
