"""Refunds by the staff: an entry of the ledger each, with a reason that stays."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from redis.exceptions import ConnectionError as RedisAway

from quotas.billing.models import Refund
from quotas.models import LedgerEntry
from quotas.selectors import ledger_of
from tests.admin_rows import grant as permit
from tests.admin_rows import make_model, make_rows, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import spend

pytestmark = pytest.mark.django_db
WHY = "Ticket 4711: it was slow."


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


@pytest.fixture
def entry(person: Person) -> LedgerEntry:
    return ledger_of(spend(person, "1.5"))[0]


def address(entry: LedgerEntry) -> str:
    return reverse("admin:quotas_ledgerentry_refund", args=[entry.pk])


def form(**changes: str) -> dict[str, str]:
    return {"amount": "0.5", "reason": WHY, "after": "0", **changes}


def test_a_refund_is_a_row_and_its_reason_another(staff: Client, entry: LedgerEntry, person: Person) -> None:
    page = staff.get(address(entry)).content.decode()
    assert "1.50 USD of it are left" in page
    answer = staff.post(address(entry), form(), follow=True)
    assert "0.50 USD are refunded." in answer.content.decode()
    assert [(row.kind, row.cost) for row in ledger_of(entry.request_id)] == [
        ("usage", Decimal("1.5")),
        ("refund", Decimal("-0.5")),
    ]
    made = Refund.objects.get()
    assert (made.request_id, made.seq, made.amount) == (entry.request_id, 0, Decimal("0.5"))
    assert (made.organization_id, made.staff_email, made.reason) == (person.organization.pk, "root@example.com", WHY)
    assert WHY in LogEntry.objects.get(object_id=str(entry.pk)).change_message
    assert WHY in staff.get(reverse("admin:billing_refund_changelist")).content.decode()
    assert staff.get(reverse("admin:billing_refund_change", args=[made.pk])).status_code == 200
    listed = staff.get(reverse("admin:billing_refund_changelist"), {"q": f"req_{entry.request_id}"})
    assert len(listed.context["cl"].result_list) == 1


def test_a_form_that_is_sent_twice_refunds_once(staff: Client, entry: LedgerEntry) -> None:
    assert staff.post(address(entry), form()).status_code == 302
    page = staff.post(address(entry), form())
    assert page.status_code == 400
    assert "was refunded meanwhile" in page.content.decode()
    assert Refund.objects.count() == 1
    assert len(ledger_of(entry.request_id)) == 2
    assert staff.post(address(entry), form(after="1")).status_code == 302
    assert (
        "Only 0.5 of what the request cost is left."
        in staff.post(address(entry), form(after="2", amount="0.6")).content.decode()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amount": "-1"}, "A refund is more than 0."),
        ({"amount": "0"}, "A refund is more than 0."),
        ({"amount": ""}, "How much?"),
        ({"amount": "x"}, "Write an amount such as 0.25."),
        ({"amount": "NaN"}, "Write an amount such as 0.25."),
        ({"amount": "0.00000000001"}, "At most ten digits after the point."),
        ({"amount": "9" * 30}, "no more than 20 digits"),
        ({"amount": "1.5000000001"}, "Only 1.5 of what the request cost is left."),
        ({"reason": ""}, "Say why."),
        ({"reason": "because"}, "Say why in 500 characters or less"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    staff: Client, entry: LedgerEntry, changes: dict[str, str], message: str
) -> None:
    page = staff.post(address(entry), form(**changes))
    assert page.status_code == 400
    assert message in page.content.decode()
    assert len(ledger_of(entry.request_id)) == 1
    assert not Refund.objects.exists()


def test_without_redis_nothing_is_refunded(staff: Client, entry: LedgerEntry, monkeypatch: Any) -> None:
    def away(_: Any) -> None:
        raise RedisAway

    monkeypatch.setattr("quotas.counters.forget", away)
    page = staff.post(address(entry), form())
    assert "Nothing was refunded" in page.content.decode()
    assert len(ledger_of(entry.request_id)) == 1
    assert not Refund.objects.exists()


def test_only_who_has_the_right_refunds(entry: LedgerEntry, make_person: Any) -> None:
    looker = signed_in(permit(make_person("looker@example.com").user, "quotas.view_ledgerentry"))
    assert looker.get(address(entry)).status_code == 403
    assert looker.post(address(entry), form()).status_code == 403
    payer = signed_in(permit(make_person("payer@example.com").user, "quotas.view_ledgerentry", "billing.add_refund"))
    assert payer.post(address(entry), form()).status_code == 302


def test_the_entry_links_to_its_refunds(staff: Client, person: Person) -> None:
    rows = make_rows(person, make_model())
    html = staff.get(reverse("admin:quotas_ledgerentry_change", args=[rows.ledger.pk])).content.decode()
    assert address(rows.ledger) in html
    assert staff.get(reverse("admin:quotas_ledgerentry_refund", args=[999_999])).status_code == 404


def test_reasons_stay(staff: Client, entry: LedgerEntry) -> None:
    staff.post(address(entry), form())
    for change in ("UPDATE billing_refund SET reason = ''", "DELETE FROM billing_refund", "TRUNCATE billing_refund"):
        with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute(change)
