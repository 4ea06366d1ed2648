"""Temporary grants raise what a reservation checks, until their day; they are ended and never changed."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from chatsite.ids import new_id
from chatsite.redis import close_async_client
from quotas.billing import grants
from quotas.billing.models import Grant
from quotas.budgets import Unit
from quotas.errors import BudgetExhausted
from quotas.models import Plan
from quotas.money import EXACT
from quotas.periods import midnight, today
from quotas.protocol import Want
from quotas.selectors import known_plans, plan_of
from quotas.services import reserve
from tests.admin_rows import grant as permit
from tests.admin_rows import signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import has_budget

pytestmark = pytest.mark.django_db(transaction=True)
COST = 10**10  # units of one of the currency


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


def give(person: Person, **changes: Any) -> Grant:
    values: dict[str, Any] = {
        "organization": person.organization,
        "last_day": today(),
        "reason": "Ticket 4711, agreed.",
        "granted_by": "root@example.com",
        **changes,
    }
    made = Grant.objects.create(**values)
    known_plans.clear()
    return made


def admits(person: Person, tokens: int = 0, cost: int = 0) -> bool:
    @async_to_sync
    async def ask() -> bool:
        try:
            await reserve(person.principal, plan, {new_id(): Want(1, tokens, cost)}, 60)
        except BudgetExhausted:
            return False
        finally:
            await close_async_client()
        return True

    plan = plan_of(person.organization.pk)
    return ask()


def test_a_grant_raises_what_a_hard_budget_admits_and_no_more(person: Person) -> None:
    """S21: spent and reserved never exceed the budget and what was granted."""
    has_budget(person.organization, "10")
    assert not admits(person, cost=11 * COST)
    give(person, cost=Decimal(5))
    assert admits(person, cost=11 * COST)
    assert not admits(person, cost=4 * COST + 1)
    assert admits(person, cost=4 * COST)
    assert not admits(person, cost=1)


def test_a_grant_raises_the_month_of_the_plan(person: Person) -> None:
    Plan.objects.filter(name="demo").update(monthly_tokens=1000)
    known_plans.clear()
    assert not admits(person, tokens=1001)
    give(person, tokens=500)
    give(person, tokens=1)
    assert admits(person, tokens=1501)
    assert not admits(person, tokens=1)


def test_only_hard_limits_of_the_whole_organization_in_the_same_unit_are_raised(person: Person) -> None:
    has_budget(person.organization, "10", hard=False)
    has_budget(person.organization, "10", scope="member", subject_id=person.user.pk)
    has_budget(person.organization, "10", period="rolling", days=7)
    has_budget(person.organization, None, limit_tokens=1000)
    give(person, cost=Decimal(5))
    limits = {
        (each.scope, each.hard, each.days, each.unit): each.limit for each in plan_of(person.organization.pk).budgets
    }
    assert limits == {
        ("organization", False, 0, Unit.COST): 10 * COST,
        ("user", True, 0, Unit.COST): 10 * COST,
        ("organization", True, 7, Unit.COST): 15 * COST,
        ("organization", True, 0, Unit.TOKENS): 1000,
    }


def test_a_grant_holds_until_the_end_of_its_day_in_utc(person: Person, monkeypatch: Any) -> None:
    give(person, cost=Decimal(5), last_day=today() + timedelta(days=1))
    assert grants.granted(person.organization.pk) == {Unit.COST: 5 * COST}
    monkeypatch.setattr(grants, "today", lambda: today() + timedelta(days=1))
    assert grants.granted(person.organization.pk) == {Unit.COST: 5 * COST}
    monkeypatch.setattr(grants, "today", lambda: today() + timedelta(days=2))
    assert grants.granted(person.organization.pk) == {}
    assert midnight(today()).utcoffset() == timedelta(0)


def test_without_a_limit_there_is_nothing_to_raise_and_nothing_is_asked(
    person: Person, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        assert grants.raised(person.organization.pk, ()) == ()


def test_limits_stay_within_what_redis_compares_exactly(person: Person) -> None:
    has_budget(person.organization, None, limit_tokens=EXACT)
    give(person, tokens=EXACT)
    [limit] = [each for each in plan_of(person.organization.pk).budgets if each.scope == "organization"]
    assert limit.limit == EXACT


def form(person: Person, **changes: str) -> dict[str, str]:
    return {
        "organization": str(person.organization.pk),
        "tokens": "",
        "cost": "5",
        "last_day": f"{today():%Y-%m-%d}",
        "reason": "Ticket 4711, agreed.",
        **changes,
    }


def test_the_staff_grants_and_ends(staff: Client, person: Person) -> None:
    has_budget(person.organization, "10")
    plan_of(person.organization.pk)
    assert staff.post(reverse("admin:billing_grant_add"), form(person)).status_code == 302
    grant = Grant.objects.get()
    assert (grant.granted_by, grant.reason) == ("root@example.com", "Ticket 4711, agreed.")
    assert [each.limit for each in plan_of(person.organization.pk).budgets] == [15 * COST]
    end = {"action": "end", "_selected_action": [str(grant.pk)]}
    assert "1 ended." in staff.post(reverse("admin:billing_grant_changelist"), end, follow=True).content.decode()
    assert [each.limit for each in plan_of(person.organization.pk).budgets] == [10 * COST]
    assert "0 ended." in staff.post(reverse("admin:billing_grant_changelist"), end, follow=True).content.decode()
    assert Grant.objects.get().ended_by == "root@example.com"
    page = staff.get(reverse("admin:billing_grant_change", args=[grant.pk])).content.decode()
    assert "Ticket 4711, agreed." in page
    assert staff.post(reverse("admin:billing_grant_change", args=[grant.pk]), form(person)).status_code == 403
    assert staff.post(reverse("admin:billing_grant_delete", args=[grant.pk]), {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": "-1"}, "At least 0.01"),
        ({"cost": "0"}, "At least 0.01"),
        ({"cost": "0.001"}, "no more than 2 decimal places"),
        ({"cost": "900001"}, "At most 900,000."),
        ({"cost": "NaN"}, "Enter a number."),
        ({"cost": "", "tokens": "-5"}, "greater than or equal to 0"),
        ({"cost": "", "tokens": "1.5"}, "Enter a whole number."),
        ({"cost": "", "tokens": "9" * 17}, "At most 9,007,199,254,740,991 tokens."),
        ({"cost": ""}, "Give one: tokens, or a cost."),
        ({"tokens": "5"}, "Give one: tokens, or a cost."),
        ({"last_day": "2020-01-01"}, "This day has passed (UTC)."),
        ({"last_day": "9999-12-31"}, "At most a year ahead"),
        ({"last_day": "x"}, "Write the date as 2026-01-31."),
        ({"reason": "ok"}, "Say why in 500 characters or less"),
    ],
)
def test_what_is_wrong_with_a_grant_is_said(
    staff: Client, person: Person, changes: dict[str, str], message: str
) -> None:
    page = staff.post(reverse("admin:billing_grant_add"), form(person, **changes))
    assert page.status_code == 200
    assert message in page.content.decode()
    assert not Grant.objects.exists()


def test_the_database_refuses_every_other_change(person: Person) -> None:
    grant = give(person, cost=Decimal(5))
    for change in (
        "UPDATE billing_grant SET cost = 6",
        "UPDATE billing_grant SET cost = 6, ended_at = now()",
        "DELETE FROM billing_grant",
        "TRUNCATE billing_grant",
    ):
        with connection.cursor() as cursor, pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
            cursor.execute(change)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_grant SET ended_at = now(), ended_by = 'x'")
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        cursor.execute("UPDATE billing_grant SET ended_at = NULL")
    assert Grant.objects.get(pk=grant.pk).cost == 5


def test_rights_are_asked_for(person: Person, make_person: Any) -> None:
    looker = signed_in(permit(make_person("looker@example.com").user, "billing.view_grant"))
    grant = give(person, cost=Decimal(5))
    assert looker.get(reverse("admin:billing_grant_add")).status_code == 403
    looker.post(reverse("admin:billing_grant_changelist"), {"action": "end", "_selected_action": [str(grant.pk)]})
    assert Grant.objects.get().ended_at is None
