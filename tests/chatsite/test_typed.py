"""Numbers and dates as people type them: one rule for every form, page and command."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import models
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from chatsite import typed
from chatsite.accounts.key_forms import NewKeyForm
from chatsite.accounts.limit_forms import LimitsForm
from inference.tuning_changes import SETTINGS
from inference.tuning_forms import TuningForm
from quotas.billing.admin_refunds import RefundForm
from quotas.billing.budget_forms import BudgetForm
from tests.admin_rows import make_model, make_rows, signed_in
from tests.chatsite.key_pages import ada, create
from tests.conftest import Person

__all__ = ["ada"]


def wide(text: str) -> str:
    """With full-width digits, which int() reads as well."""
    return text.translate({ord("0") + each: 0xFF10 + each for each in range(10)})


FULL_WIDTH, ARABIC = wide("10"), "\u0661\u0660"
STRANGE = [
    "1_0",
    "+10",
    "1e1",
    "1E1",
    FULL_WIDTH,
    ARABIC,
    "0x0A",
    "1 0",
    "1,000",
    "10.",
    "--10",
    "ten",
    "½",
    "nan",
    "inf",
]
FIELDS: list[Callable[[], forms.Field]] = [typed.WholeField, typed.AmountField, typed.FigureField]


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("make", FIELDS)
def test_what_nobody_writes_is_no_number(make: Callable[[], forms.Field], text: str) -> None:
    with pytest.raises(ValidationError, match="Enter a"):
        make().clean(text)
    with pytest.raises(ValueError, match="number"):
        typed.whole(text)


@pytest.mark.parametrize("text", ["10", " 10 ", "\t10\n", "\N{NO-BREAK SPACE}10", "010"])
def test_digits_are_a_number_and_the_spaces_around_them_nothing(text: str) -> None:
    assert [make().clean(text) for make in FIELDS] == [10, Decimal(10), 10.0]
    assert typed.whole(text) == 10


def test_only_some_fields_take_a_point() -> None:
    assert typed.AmountField().clean("12.50") == Decimal("12.5") and typed.FigureField().clean(".5") == 0.5
    for text in ("12.50", "10.0"):
        with pytest.raises(ValidationError):
            typed.WholeField().clean(text)
    assert [make().clean("-3") for make in FIELDS] == [-3, Decimal(-3), -3.0]
    assert typed.whole("-3") == -3


@pytest.mark.parametrize("make", FIELDS)
def test_an_empty_field_stays_empty(make: Callable[..., forms.Field]) -> None:
    assert make(required=False).clean("") is None and make(required=False).clean("  ") is None
    with pytest.raises(ValidationError, match="required"):
        make().clean(" ")
    with pytest.raises(ValidationError):
        make().clean("9" * 10_000 + "x")


@pytest.mark.parametrize(
    "text", [wide("2027-01-31"), "01/31/2027", "31.1.2027", "2027-02-30", "27-01-31", "2027-1_1-05", "x"]
)
def test_what_is_no_day(text: str) -> None:
    with pytest.raises(ValidationError, match="Write the date as 2026-01-31"):
        typed.DayField().clean(text)


@pytest.mark.parametrize(
    ("day", "clock", "said"),
    [
        ("0001-01-01", "00:00", "from 1970 to 2099"),
        ("9999-12-31", "23:59:59", "from 1970 to 2099"),
        ("1969-12-31", "12:00", "from 1970 to 2099"),
        ("2026-01-31", "24:00", "Write the time as 14:05."),
        ("2026-01-31", wide("14:05"), "Write the time as 14:05."),
        ("2026-01-31", "", "required"),
        ("", "14:05", "required"),
        ("1/31/26", "14:05", "Write the date as 2026-01-31."),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_what_is_no_moment(day: str, clock: str, said: str, zone: str) -> None:
    with timezone.override(zone), pytest.raises(ValidationError, match=said):
        typed.MomentField().clean([day, clock])


def test_a_moment_is_of_the_clock_of_the_person() -> None:
    with timezone.override("Pacific/Auckland"):
        assert typed.MomentField().clean(["2027-01-31", "09:30"]) == datetime(2027, 1, 30, 20, 30, tzinfo=UTC)


# Everywhere


def _site_forms(person: Person) -> Iterator[forms.Form]:
    yield NewKeyForm()
    yield LimitsForm()
    yield BudgetForm(organization=person.organization)
    yield RefundForm()
    yield TuningForm(current={path: each.default for path, each in SETTINGS.items()})


READ_BY_RULE = (models.IntegerField, models.DecimalField, models.FloatField, models.DateField)


def _admin_fields(user: Any) -> Iterator[tuple[str, forms.Field]]:
    request = RequestFactory().get("/admin/")
    request.user = user
    for model, model_admin in admin.site._registry.items():
        for field in model._meta.fields:
            if not isinstance(field, READ_BY_RULE):
                continue
            if (made := model_admin.formfield_for_dbfield(field, request)) is not None:
                yield f"{model.__name__}.{field.name}", made


RAW = (forms.IntegerField, forms.FloatField, forms.DateField, forms.DateTimeField, forms.SplitDateTimeField)
OURS = (typed.WholeField, typed.AmountField, typed.FigureField, typed.DayField, typed.MomentField)


@pytest.mark.django_db
def test_every_form_of_the_site_and_of_the_admin_reads_numbers_and_dates_by_this_rule(make_person: Any) -> None:
    root = make_person("root@example.com", superuser=True)
    found = [
        (f"{type(form).__name__}.{name}", each) for form in _site_forms(root) for name, each in form.fields.items()
    ]
    found += _admin_fields(root.user)
    numbers = [(name, each) for name, each in found if isinstance(each, RAW)]
    assert len(numbers) > 50
    assert [name for name, each in numbers if not isinstance(each, OURS)] == []


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["1_0", "+10", "1e1", FULL_WIDTH])
def test_limits_of_keys_and_plans_are_not_guessed_at(ada: Client, make_person: Any, text: str) -> None:
    answer = create(ada, "k", requests_per_minute=text)
    assert answer.status_code == 400 and "Write a whole number, or nothing." in answer.content.decode()
    answer = create(ada, "k", monthly_cost=text)
    assert answer.status_code == 400 and "Write an amount such as 20 or 12.50" in answer.content.decode()
    staff = signed_in(make_person("root@example.com", superuser=True).user)
    page = staff.post(reverse("admin:quotas_plan_add"), {"name": "x", "tokens_per_minute": text, "weight": text})
    assert page.content.decode().count("Enter a whole number.") == 1 and "Enter a number." in page.content.decode()


@pytest.mark.django_db
def test_addresses_of_the_admin_have_plain_numbers(make_person: Any, person: Person) -> None:
    rows = make_rows(person, make_model())
    staff = signed_in(make_person("root@example.com", superuser=True).user)
    key = str(rows.ledger.pk)
    assert staff.get(f"/admin/quotas/ledgerentry/{key}/change/").status_code == 200
    for text in (f"0_{key}", f"+{key}", wide(key)):
        assert staff.get(f"/admin/quotas/ledgerentry/{text}/change/", follow=True).redirect_chain, text
    users = reverse("admin:accounts_user_changelist")
    for page in ("1_0", FULL_WIDTH, "+1"):
        assert staff.get(users, {"p": page}).status_code == 302
    assert staff.get(users, {"created_at__year": wide("2026")}).status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("year", ["0000", "0001", "1969", "2100", "9999"])
def test_years_out_of_bounds_are_no_filter(make_person: Any, year: str) -> None:
    staff = signed_in(make_person("root@example.com", superuser=True).user)
    day = {"created_at__year": year, "created_at__month": "12", "created_at__day": "31"}
    assert staff.get(reverse("admin:accounts_user_changelist"), day).status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["1_0", "+3", FULL_WIDTH, "3.0", "x", "25", "-1"])
def test_commands_take_plain_numbers(text: str) -> None:
    with pytest.raises(CommandError, match="ahead"):
        call_command("ledgerpartitions", f"--ahead={text}")
