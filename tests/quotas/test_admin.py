"""Plans and subscriptions can be changed in the admin; the ledger cannot."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from quotas.models import Budget, LedgerEntry, Plan, Price, Stop, Subscription
from quotas.selectors import ledger_of, plan_of
from quotas.services import Prices, make_default, sync_price
from tests.admin_rows import make_model, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


def plan_form(**changes: str) -> dict[str, str]:
    return {
        "name": "free",
        "tier": "free",
        "tokens_per_minute": "5000",
        "concurrent": "2",
        "weight": "1",
        "isolation": "own",
        **changes,
    }


def test_a_changed_plan_counts_at_once(staff: Client, make_person: Any) -> None:
    person = make_person("finn@example.com", plan="free")
    assert plan_of(person.organization.id).tokens_per_minute != 5000
    plan = Plan.objects.get(name="free")
    assert staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), plan_form()).status_code == 302
    assert plan_of(person.organization.id).tokens_per_minute == 5000
    assert plan_of(person.organization.id).requests_per_minute is None
    staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), plan_form(requests_per_minute="90"))
    assert plan_of(person.organization.id).requests_per_minute == 90


@pytest.mark.parametrize("weight", ["0.001", "2.5", "1000"])
def test_a_plans_weight_is_told_to_the_scheduler(staff: Client, make_person: Any, weight: str) -> None:
    person = make_person("finn@example.com", plan="free")
    assert plan_of(person.organization.id).weight == 1.0
    plan = Plan.objects.get(name="free")
    address = reverse("admin:quotas_plan_change", args=[plan.pk])
    assert "Share of its lane" in staff.get(address).content.decode()
    assert staff.post(address, plan_form(weight=weight)).status_code == 302
    assert plan_of(person.organization.id).weight == float(weight)


@pytest.mark.parametrize("weight", [Decimal(0), Decimal(-1), Decimal("1000.001")])
def test_no_plan_has_a_weight_that_clocks_cannot_count_with(weight: Decimal) -> None:
    with pytest.raises(IntegrityError, match="plan_weight_positive"), transaction.atomic():
        Plan.objects.update(weight=weight)


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
        ("monthly_tokens", "0", "At least one token, or leave it empty"),
        ("monthly_tokens", "-1", "greater than or equal to 0"),
        ("monthly_tokens", "1.5", "Enter a whole number."),
        ("monthly_tokens", "9" * 17, "At most 9,007,199,254,740,991 tokens."),
        ("monthly_cost", "0", "At least 0.01, or leave it empty"),
        ("monthly_cost", "-3", "At least 0.01, or leave it empty"),
        ("monthly_cost", "0.001", "no more than 2 decimal places"),
        ("monthly_cost", "900001", "At most 900,000."),
        ("monthly_cost", "9" * 40, "no more than 12 digits"),
        ("monthly_cost", "NaN", "Enter a number."),
        ("context_tokens", "0", "At least one token, or leave it empty"),
        ("output_tokens", "-1", "greater than or equal to 0"),
        ("weight", "0", "More than 0: at least 0.001."),
        ("weight", "-2", "More than 0: at least 0.001."),
        ("weight", "1000.001", "At most 1,000."),
        ("weight", "0.0001", "no more than 3 decimal places"),
        ("weight", "9" * 30, "no more than 7 digits"),
        ("weight", "NaN", "Enter a number."),
        ("weight", "", "This field is required."),
        ("isolation", "none", "not one of the available choices"),
        ("models", "no such model", "not one of the available choices"),
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


def test_a_plan_names_a_model_once(staff: Client) -> None:
    for name in ("small", "large"):
        make_model(name)
    plan = Plan.objects.get(name="free")
    form = {**plan_form(), "models": ["small", "large", "small", "small"]}
    assert staff.post(reverse("admin:quotas_plan_change", args=[plan.pk]), form).status_code == 302
    assert Plan.objects.get(name="free").models == ["small", "large"]
    add = reverse("admin:quotas_plan_add")
    assert staff.post(add, {**form, "name": "new", "models": ["small", "small"]}).status_code == 302
    assert Plan.objects.get(name="new").models == ["small"]


def test_a_plan_without_models_has_all_and_one_with_some_has_these(staff: Client, make_person: Any) -> None:
    person, small, big = make_person("finn@example.com", plan="free"), make_model("small"), make_model("big")
    address = reverse("admin:quotas_plan_change", args=[Plan.objects.get(name="free").pk])
    caps = {"context_tokens": "100", "output_tokens": "10", "monthly_cost": "2.50", "isolation": "shared"}
    assert staff.post(address, {**plan_form(**caps), "models": [small.name]}).status_code == 302
    limits = plan_of(person.organization.id)
    assert (limits.allows(small.name), limits.allows(big.name), limits.shares_cache) == (True, False, True)
    assert (limits.context(4096), limits.context(50), limits.output_tokens) == (100, 50, 10)
    assert [(each.scope, each.limit) for each in limits.budgets] == [("plan", 25_000_000_000)]
    small.delete()
    assert "small (gone)" in staff.get(address).content.decode()
    assert staff.post(address, plan_form()).status_code == 302
    limits = plan_of(person.organization.id)
    assert (limits.allows(big.name), limits.context(4096), limits.budgets) == (True, 4096, ())


def budget_form(person: Person, **changes: str) -> dict[str, str]:
    form = {"organization": str(person.organization.pk), "scope": "organization", "period": "month", "hard": "on"}
    return {**form, **changes}


def test_a_budget_counts_at_once_and_is_changed_and_deleted(staff: Client, person: Person) -> None:
    add = reverse("admin:quotas_budget_add")
    assert plan_of(person.organization.id).budgets == ()
    assert staff.post(add, budget_form(person, limit_cost="20")).status_code == 302
    assert [each.limit for each in plan_of(person.organization.id).budgets] == [20 * 10**10]
    again = staff.post(add, budget_form(person, limit_cost="30"))
    assert "There is such a budget already" in again.content.decode()
    form = budget_form(person, scope="key", subject_id=str(person.key.pk), period="rolling", days="7", limit_tokens="5")
    assert staff.post(add, form).status_code == 302
    assert Budget.objects.get(scope="key").subject_id == person.key.chain_id
    row = Budget.objects.get(scope="organization")
    change = reverse("admin:quotas_budget_change", args=[row.pk])
    assert staff.post(change, budget_form(person, limit_tokens="9", days="5")).status_code == 302
    row.refresh_from_db()
    assert (row.limit_tokens, row.limit_cost, row.days) == (9, None, None)
    assert staff.get(reverse("admin:quotas_budget_changelist")).status_code == 200
    assert staff.post(reverse("admin:quotas_budget_delete", args=[row.pk]), {"post": "yes"}).status_code == 302
    assert [each.scope for each in plan_of(person.organization.id).budgets] == ["key"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "Give one limit: a cost, or tokens."),
        ({"limit_cost": "1", "limit_tokens": "1"}, "Give one limit: a cost, or tokens."),
        ({"limit_cost": "0"}, "At least 0.01"),
        ({"limit_cost": "-1"}, "At least 0.01"),
        ({"limit_cost": "900000.01"}, "At most 900,000."),
        ({"limit_tokens": "2.5"}, "Enter a whole number."),
        ({"limit_tokens": "1", "period": "rolling"}, "How many days?"),
        ({"limit_tokens": "1", "period": "rolling", "days": "0"}, "At least one day."),
        ({"limit_tokens": "1", "period": "rolling", "days": "91"}, "less than or equal to 90"),
        ({"limit_tokens": "1", "scope": "member"}, "That is no member of the organization"),
        ({"limit_tokens": "1", "scope": "key", "subject_id": "01936b5e-0000-7000-8000-000000000000"}, "no API key"),
        ({"limit_tokens": "1", "scope": "key", "subject_id": "x"}, "Enter a valid UUID."),
        ({"limit_tokens": "1", "organization": "x"}, "is not a valid UUID"),
    ],
)
def test_what_is_wrong_with_a_budget_is_said(
    staff: Client, person: Person, changes: dict[str, str], message: str
) -> None:
    page = staff.post(reverse("admin:quotas_budget_add"), budget_form(person, **changes))
    assert page.status_code == 200
    assert message in page.content.decode()
    assert not Budget.objects.exists()


def price_form(begins: datetime, **changes: str) -> dict[str, str]:
    when = {"valid_from_0": f"{begins:%Y-%m-%d}", "valid_from_1": f"{begins:%H:%M:%S}"}
    return {"model": "small", **when, "input": "1", "cached": "0.1", "output": "2", **changes}


def test_prices_are_added_and_taken_back_before_they_begin(staff: Client, person: Person) -> None:
    model = make_model()
    sync_price(model.name, Prices(model.price_input, model.price_cached, model.price_output))
    add = reverse("admin:quotas_price_add")
    tomorrow = timezone.now() + timedelta(days=1)
    for wrong in (price_form(timezone.now()), price_form(tomorrow, input="-1"), price_form(tomorrow, model="other")):
        assert staff.post(add, wrong).status_code == 200
    assert staff.post(add, price_form(tomorrow)).status_code == 302
    first, second = Price.objects.order_by("valid_from")
    assert staff.post(reverse("admin:quotas_price_delete", args=[first.pk]), {"post": "yes"}).status_code == 403
    assert staff.post(reverse("admin:quotas_price_change", args=[second.pk]), price_form(tomorrow)).status_code == 403
    assert staff.post(reverse("admin:quotas_price_delete", args=[second.pk]), {"post": "yes"}).status_code == 302
    assert Price.objects.get() == first


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"valid_from_0": "0001-01-01"}, "The year has to be from 1970 to 2099."),
        ({"valid_from_0": "9999-12-31", "valid_from_1": "23:59:59"}, "The year has to be from 1970 to 2099."),
        ({"valid_from_0": "2001-01-01"}, "A price begins in the future"),
        ({"valid_from_0": "2062-01-01"}, "A price begins within two years: look at the year again."),
        ({"valid_from_0": "03/04/2027"}, "Write the date as 2026-01-31."),
        ({"valid_from_0": "2027-02-30"}, "Write the date as 2026-01-31."),
        ({"valid_from_1": "9 am"}, "Write the time as 14:05."),
        ({"valid_from_0": "", "valid_from_1": ""}, "This field is required."),
        ({"input": "1_0"}, "Enter a number."),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_a_price_that_begins_at_a_mistyped_time_is_refused_in_words(
    staff: Client, changes: dict[str, str], said: str, zone: str
) -> None:
    make_model()
    staff.cookies["timezone"] = zone
    page = staff.post(reverse("admin:quotas_price_add"), price_form(timezone.now() + timedelta(days=2), **changes))
    assert page.status_code == 200 and said in page.content.decode()
    assert not Price.objects.exists()


@pytest.mark.parametrize("days", [1, 700])
def test_a_price_may_be_announced_long_before(staff: Client, days: int) -> None:
    make_model()
    begins = (timezone.now() + timedelta(days=days)).replace(microsecond=0)
    assert staff.post(reverse("admin:quotas_price_add"), price_form(begins)).status_code == 302
    assert Price.objects.get().valid_from == begins


def test_a_stop_is_added_once_and_deleted(staff: Client, person: Person) -> None:
    add = reverse("admin:quotas_stop_add")
    for organization in ("", str(person.organization.pk)):
        assert plan_of(person.organization.id).stopped == ("" if not organization else "Back at noon.")
        form = {"organization": organization, "message": "Back at noon."}
        assert staff.post(add, form).status_code == 302
        assert "It is stopped already." in staff.post(add, form).content.decode()
    for row in Stop.objects.all():
        assert staff.post(reverse("admin:quotas_stop_delete", args=[row.pk]), {"post": "yes"}).status_code == 302
    assert plan_of(person.organization.id).stopped == ""
