"""Top spenders, rollups and findings in the admin."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chatsite.ids import new_id
from inference.protocol import Usage
from quotas import rollups
from quotas.models import UsageCheck, UsageFinding
from quotas.usage_checks import check
from tests.admin_rows import grant, signed_in
from tests.conftest import Person
from tests.quotas.used import used

pytestmark = pytest.mark.django_db
SPENDERS = "admin:quotas_topspender_changelist"


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


def page(staff: Client, name: str, **query: str) -> str:
    answer = staff.get(reverse(name), query)
    assert answer.status_code == 200, answer.content
    return " ".join(answer.content.decode().split())


@pytest.fixture
def use(person: Person, stranger: Person) -> None:
    used(person.organization.pk, user_id=person.user.pk, api_key_id=person.key.pk, usage=Usage(0, 0, 1_000_000))
    used(stranger.organization.pk, user_id=stranger.user.pk, usage=Usage(0, 0, 5_000_000), model="large")
    last_month = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    used(person.organization.pk, last_month, user_id=person.user.pk, usage=Usage(0, 0, 50_000_000))
    rollups.roll_up()


def test_who_cost_most_comes_first(staff: Client, person: Person, stranger: Person, use: None) -> None:
    text = page(staff, SPENDERS)
    assert text.index(f"{stranger.organization.name}</a>") < text.index(f"{person.organization.name}</a>")
    assert "2.00 USD" in text
    assert "0.40 USD" in text
    assert "20.00 USD" not in text
    assert "As of" in text
    before = page(staff, SPENDERS, period="last-month")
    assert "20.00 USD" in before
    assert f"{stranger.organization.name}</a>" not in before


def test_by_user_key_and_model(staff: Client, person: Person, stranger: Person, use: None) -> None:
    gone = new_id()
    used(gone, user_id=gone, api_key_id=gone, usage=Usage(0, 0, 1))
    rollups.roll_up()
    users = page(staff, SPENDERS, by="user")
    assert users.index("eve@example.com") < users.index("ada@example.com") < users.index(f"user_{gone} (gone)")
    keys = page(staff, SPENDERS, by="key")
    assert keys.index("without a key") < keys.index("test (ada@example.com)") < keys.index(f"key_{gone} (gone)")
    models = page(staff, SPENDERS, by="model")
    assert models.index(">large<") < models.index(">tiny<")


def test_nobody_has_used_anything(staff: Client) -> None:
    assert "Nobody has used anything in this period." in page(staff, SPENDERS)


def test_of_spenders_only_what_there_is_can_be_asked(staff: Client) -> None:
    for query in ({"period": "year"}, {"by": "lane"}, {"q": "x"}, {"period": "\0"}):
        assert staff.get(reverse(SPENDERS), query).status_code == 400


def test_spenders_need_a_right_of_their_own(person: Person) -> None:
    some = grant(person.user, "quotas.view_usageday")
    assert signed_in(some).get(reverse(SPENDERS)).status_code == 403
    assert signed_in(some).get(reverse("admin:quotas_usageday_changelist")).status_code == 200
    some = grant(person.user, "quotas.view_topspender")
    assert signed_in(some).get(reverse(SPENDERS)).status_code == 200


def test_rollups_can_be_filtered_and_not_changed(staff: Client, person: Person, use: None) -> None:
    address = reverse("admin:quotas_usageday_changelist")
    assert staff.get(address).context["cl"].result_count == 3
    assert staff.get(address, {"days": "1"}).context["cl"].result_count == 2
    assert staff.get(address, {"q": person.organization.public_id}).context["cl"].result_count == 2
    assert staff.get(reverse("admin:quotas_usageday_add")).status_code == 403
    assert staff.get(reverse("admin:quotas_usagehour_add")).status_code == 403


def test_findings_say_when_was_last_looked(staff: Client, person: Person) -> None:
    name = "admin:quotas_usagefinding_changelist"
    assert "has not run yet" in page(staff, name)
    run = UsageCheck.objects.create(since="2026-01-01")
    assert "has not ended" in page(staff, name)
    UsageFinding.objects.create(
        of_check=run, organization_id=person.organization.pk, what="days", unit="cost", in_ledger=1, found=2
    )
    check()
    assert "The last check ended on" in page(staff, name)
    assert staff.get(reverse(name), {"what__exact": "counter"}).context["cl"].result_count == 0
    assert staff.get(reverse(name), {"what__exact": "days", "found_in": "1"}).context["cl"].result_count == 1
