"""Large numbers can be read in the admin: thousands apart, in every list and on every page."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from chatsite.admin_figures import figure, readable
from chatsite.admin_search import SearchableAdmin
from chatsite.look_only import LookOnlyAdmin
from inference.models import Request
from quotas.models import Plan, Price, UsageDay
from tests.admin_rows import Rows, make_model, make_rows, signed_in
from tests.chatsite.entering import text_of
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model(context_length=131072, price_input=Decimal("1234.5")))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"),
        (0, "0"),
        (Decimal("1000000.00"), "1,000,000"),
        (Decimal("0.0000000001"), "0.0000000001"),
        (Decimal("-1234.50"), "-1,234.5"),
        (0.25, "0.25"),
        (1e-7, "0.0000001"),
        (None, "-"),
    ],
)
def test_figures(value: Any, text: str) -> None:
    assert figure(value) == text


def test_no_list_and_no_page_shows_a_bare_number(make_person: Any) -> None:
    request = RequestFactory().get("/admin/")
    request.user = make_person("root@example.com", superuser=True).user
    looked_at = 0
    for model, model_admin in admin.site._registry.items():
        assert isinstance(model_admin, SearchableAdmin)
        shown = model_admin.get_list_display(request)
        if isinstance(model_admin, LookOnlyAdmin):
            shown = [*shown, *flatten_fieldsets(model_admin.get_fieldsets(request, model()))]
        looked_at += len(shown)
        assert [each for each in shown if readable(model, each) is not each] == [], model
    assert looked_at > 200


def test_plans(staff: Client) -> None:
    Plan.objects.filter(name="free").update(
        tokens_per_minute=1234567,
        requests_per_minute=None,
        monthly_tokens=9876543210,
        monthly_cost=Decimal("123456.50"),
    )
    address = reverse("admin:quotas_plan_changelist")
    page = text_of(staff.get(address))
    assert "1,234,567" in page and "9,876,543,210" in page and "123,456.50" in page and "1234567" not in page
    form = staff.get(reverse("admin:quotas_plan_change", args=[Plan.objects.get(name="free").pk])).content.decode()
    assert 'value="1234567"' in form, "where it is typed it has no separators"
    for column in range(1, 11):
        for order in (f"{column}", f"-{column}"):
            assert staff.get(address, {"o": order}).status_code == 200


def test_lists_are_sorted_by_the_number_and_not_by_its_text(staff: Client) -> None:
    for name, tokens in (("a", 9), ("b", 1000), ("c", 200)):
        Plan.objects.create(name=name, tokens_per_minute=tokens, concurrent=1)
    page = staff.get(reverse("admin:quotas_plan_changelist"), {"o": "-4"})
    found = [row.tokens_per_minute for row in page.context["cl"].result_list]
    assert found == sorted(found, reverse=True)
    assert "Tokens per minute" in page.content.decode()


def test_use_models_and_prices(staff: Client, rows: Rows) -> None:
    Request.objects.update(prompt_tokens=1234567, output_tokens=7654321)
    UsageDay.objects.update(input=1234567, cached=1000, output=7654321, requests=54321, cost=Decimal("9876.54321"))
    price = Price.objects.create(
        model="small", valid_from=timezone.now(), input=1, cached=1, output=Decimal("4321.125")
    )
    day = UsageDay.objects.values_list("pk", flat=True)[0]
    pages = {
        reverse("admin:inference_request_changelist"): ["1,234,567 / 7,654,321"],
        reverse("admin:inference_request_change", args=[rows.request.pk]): ["1,234,567", "7,654,321"],
        reverse("admin:inference_model_changelist"): ["131,072", "1,234.5"],
        reverse("admin:inference_model_change", args=[rows.model.pk]): ["131,072", "1,234.5"],
        reverse("admin:quotas_usageday_changelist"): ["54,321", "1,234,567 / 1,000 / 7,654,321", "9,876.54321"],
        reverse("admin:quotas_usageday_change", args=[day]): ["54,321", "1,234,567", "7,654,321", "9,876.54321"],
        reverse("admin:quotas_price_changelist"): ["4,321.125"],
        reverse("admin:quotas_price_change", args=[price.pk]): ["4,321.125"],
        reverse("admin:quotas_ledgerentry_change", args=[rows.ledger.pk]): [],
    }
    for address, texts in pages.items():
        page = text_of(staff.get(address))
        assert [each for each in texts if each not in page] == [], address
        assert [each for each in ("1234567", "7654321", "131072") if each in page] == [], address
