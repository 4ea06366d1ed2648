"""Plans and subscriptions can be changed in the admin; the ledger cannot."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from quotas.models import LedgerEntry, Plan, Subscription
from quotas.selectors import ledger_of, plan_of
from quotas.services import make_default
from tests.admin_rows import make_model, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


def plan_form(**changes: str) -> dict[str, str]:
    return {"name": "free", "tier": "free", "tokens_per_minute": "5000", "concurrent": "2", **changes}


def test_a_changed_plan_counts_at_once(staff: Client, make_person: Any) -> None:
    person = make_person("finn@example.com", plan="free")
    assert plan_of(person.organization.id).tokens_per_minute != 5000
    plan = Plan.objects.get(name="free")
    assert staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), plan_form()).status_code == 302
    assert plan_of(person.organization.id).tokens_per_minute == 5000
    assert plan_of(person.organization.id).requests_per_minute is None
    staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), plan_form(requests_per_minute="90"))
    assert plan_of(person.organization.id).requests_per_minute == 90


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tokens_per_minute", "0", "A plan needs at least one token a minute."),
        ("concurrent", "0", "A plan needs at least one reply at a time."),
        ("requests_per_minute", "0", "A plan needs at least one request a minute, or no such limit."),
        ("tokens_per_minute", "-5", "greater than or equal to 0"),
        ("tokens_per_minute", "9" * 30, "less than or equal to"),
        ("concurrent", "x", "Enter a whole number."),
        ("tier", "gold", "not one of the available choices"),
        ("name", "plus", "already exists"),
        ("name", "<b>", "Enter a valid"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(staff: Client, field: str, value: str, message: str) -> None:
    plan = Plan.objects.get(name="free")
    page = staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), plan_form(**{field: value}))
    assert page.status_code == 200
    assert message in page.content.decode()
    assert Plan.objects.get(pk=plan.pk).tokens_per_minute == plan.tokens_per_minute


def test_one_plan_is_the_default(staff: Client) -> None:
    default = Plan.objects.get(is_default=True)
    other = Plan.objects.exclude(pk=default.pk)[0]
    address = reverse("admin:quotas_plan_changelist")
    act = {"action": "make_default", "_selected_action": [str(default.pk), str(other.pk)]}
    assert "Choose one plan" in staff.post(address, act, follow=True).content.decode()
    act["_selected_action"] = [str(other.pk)]
    assert staff.post(address, act).status_code == 302
    assert list(Plan.objects.filter(is_default=True)) == [other]
    make_default(default)
    make_default(default)
    assert list(Plan.objects.filter(is_default=True)) == [default]


def test_a_plan_in_use_and_the_default_stay(staff: Client, person: Person) -> None:
    default = Plan.objects.get(is_default=True)
    assert staff.post(reverse("admin:quotas_plan_delete", args=[default.pk]), {"post": "yes"}).status_code == 403
    used = Plan.objects.get(name="demo")
    assert staff.post(reverse("admin:quotas_plan_delete", args=[used.pk]), {"post": "yes"}).status_code == 200
    staff.post(
        reverse("admin:quotas_plan_changelist"), {"action": "delete_selected", "_selected_action": [str(default.pk)]}
    )
    assert Plan.objects.filter(pk__in=[default.pk, used.pk]).count() == 2


def test_a_subscription_is_changed_from_now_on(staff: Client, person: Person) -> None:
    before = timezone.now()
    assert plan_of(person.organization.id).name == "demo"
    address = reverse("admin:quotas_subscription_change", args=[person.organization.pk])
    plus = Plan.objects.get(name="plus")
    assert staff.post(address, {"plan": str(plus.pk)}).status_code == 302
    changed = Subscription.objects.get(organization=person.organization)
    assert changed.since >= before
    assert plan_of(person.organization.id).name == "plus"
    assert staff.post(address, {"plan": ""}).status_code == 200
    assert staff.post(address.replace("/change/", "/delete/"), {"post": "yes"}).status_code == 302
    assert plan_of(person.organization.id).name == Plan.objects.get(is_default=True).name


def test_a_second_subscription_is_refused_in_words(staff: Client, person: Person) -> None:
    form = {"organization": str(person.organization.pk), "plan": str(Plan.objects.get(name="free").pk)}
    page = staff.post(reverse("admin:quotas_subscription_add"), form)
    assert "already exists" in page.content.decode()


def test_the_ledger_is_to_look_at(staff: Client, person: Person) -> None:
    rows = make_rows(person, make_model())
    entry = rows.ledger
    assert ledger_of(rows.request.id) == [entry]
    for what in ("change", "delete"):
        address = reverse(f"admin:quotas_ledgerentry_{what}", args=[entry.pk])
        assert staff.post(address, {"post": "yes", "cost": "0"}).status_code == 403
    assert staff.get(reverse("admin:quotas_ledgerentry_add")).status_code == 403
    staff.post(
        reverse("admin:quotas_ledgerentry_changelist"), {"action": "delete_selected", "_selected_action": [entry.pk]}
    )
    assert LedgerEntry.objects.get(pk=entry.pk).cost == entry.cost > Decimal(0)


def test_the_ledger_by_model_and_outcome(staff: Client, person: Person) -> None:
    rows = make_rows(person, make_model())
    address = reverse("admin:quotas_ledgerentry_changelist")
    for query, count in [({"model": rows.model.name}, 1), ({"model": "other"}, 0), ({"outcome": "failed"}, 0)]:
        assert len(staff.get(address, query).context["cl"].result_list) == count
    html = staff.get(reverse("admin:quotas_ledgerentry_change", args=[rows.ledger.pk])).content.decode()
    assert f"req_{rows.request.id}" in html
    assert "Cost in USD" in html or "cost in USD" in html


@pytest.mark.parametrize("value", ["x", "\0", "9" * 5000, "\u202e"])
def test_a_hand_made_organization_is_refused_in_words(staff: Client, value: str) -> None:
    address = reverse("admin:quotas_subscription_add")
    page = staff.post(address, {"organization": value, "plan": str(Plan.objects.get(name="free").pk)})
    assert page.status_code == 200
    assert page.context["adminform"].form.errors["organization"]
    assert staff.get(address, {"organization": value}).status_code == 200
