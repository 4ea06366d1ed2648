"""Monthly statements: their totals are the ledger's, to the last digit, and only those who may see them do."""

import csv
import io
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum
from django.test import Client

from chatsite.accounts.keys import Terms, change_api_key
from chatsite.accounts.models import Organization, User
from chatsite.accounts.protocol import COMMAND
from inference.protocol import Usage
from quotas.billing import statement_csv, statements
from quotas.billing.templatetags.billing import money
from quotas.models import LedgerEntry, Price
from quotas.periods import Period, midnight, today
from quotas.protocol import Prices
from quotas.services import Correction, correct, refund
from tests.admin_rows import make_model, make_request
from tests.chatsite.organizations import make_organization, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import spend

pytestmark = pytest.mark.django_db
THIS = Period.month(today())
LAST = Period.month(THIS.start - timedelta(days=1))
ODD = Prices(Decimal("0.1234"), Decimal("0.000001"), Decimal("7.654321"))


def ledger(organization: Organization, period: Period) -> dict[str, Any]:
    first, last = period.ids
    rows = LedgerEntry.objects.filter(organization_id=organization.pk, request_id__gte=first, request_id__lt=last)
    return rows.aggregate(cost=Sum("cost"), input=Sum("input"), cached=Sum("cached"), output=Sum("output"))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def month(period: Period) -> str:
    return f"{period.start:%Y-%m}"


def uses_much(person: Person, stranger: Person, at: datetime) -> None:
    """Two models, keys, members, price lists and kinds; amounts that no float has."""
    price = Price.objects.create(
        model="small", valid_from=datetime(2020, 1, 1, tzinfo=UTC), input=Decimal("0.1234"), cached=0, output=1
    )
    for number in range(7):
        spend(person, 0, at=at, prices=ODD, price=price.pk, usage=Usage(1234 + number, 17, 345), lane="paid")
    spend(person, 0, at=at, prices=ODD, usage=Usage(999, 0, 1), lane="batch", model="large")
    spend(person, 0, at=at, prices=ODD, usage=Usage(1, 0, 1), api_key_id=None, user_id=stranger.user.pk)
    wrong = spend(person, "3", at=at, price=price.pk)
    correct(wrong, Correction(output=-0, input=-100, cost=Decimal("-0.0001000001")))
    refund(wrong, Decimal("1.0000000003"))


def test_totals_are_those_of_the_ledger_to_the_last_digit(person: Person, stranger: Person) -> None:
    uses_much(person, stranger, midnight(LAST.start))
    spend(person, "100")  # of another month
    spend(stranger, "100", at=midnight(LAST.start))  # of another organization
    found, truth = statements.statement(person.organization, LAST), ledger(person.organization, LAST)
    assert found.total == statements.Sum(10, 0, truth["input"], truth["cached"], truth["output"], truth["cost"])
    for group in (found.by_kind, found.by_model, found.by_member, found.by_key):
        assert sum((each.cost for _, each in group), Decimal(0)) == truth["cost"]
    assert {(each.kind_text, each.batch, each.model) for each in found.lines} == {
        ("use", False, "small"),
        ("use", True, "large"),
        ("correction", False, "small"),
        ("refund", False, "small"),
    }
    rows = rows_of(statement_csv.as_csv(found))
    assert sum(Decimal(each["cost"]) for each in rows[:-1]) == Decimal(rows[-1]["cost"]) == truth["cost"]
    assert sum(int(each["input"]) for each in rows[:-1]) == int(rows[-1]["input"]) == truth["input"]
    assert rows[-1]["kind"] == "total"


def test_requests_whose_counts_are_an_estimate_are_told_apart(person: Person) -> None:
    id = spend(person, "1", source="estimate")
    spend(person, "1", source="estimate", model="large")
    spend(person, "1")
    refund(id, Decimal("0.25"))  # no request, whatever the counts were that it pays back
    found = statements.statement(person.organization, THIS)
    assert (found.total.requests, found.total.estimated) == (3, 2)
    assert dict(found.by_model)["large"].estimated == 1
    rows = rows_of(statement_csv.as_csv(found))
    assert [(each["kind"], each["estimated"]) for each in rows if each["model"] == "small"] == [
        ("usage", "1"),
        ("refund", "0"),
    ]
    assert rows[-1]["estimated"] == "2"
    page = signed_in(person).get(f"/usage/statements/{month(THIS)}").content.decode()
    assert "2 of the requests were cut before" in page
    assert "use, 1 estimated" in page


def test_a_line_names_member_key_and_price_list(person: Person) -> None:
    price = Price.objects.create(
        model="small", valid_from=datetime(2020, 1, 1, tzinfo=UTC), input=Decimal("0.1"), cached=0, output=1
    )
    spend(person, "1.5", price=price.pk)
    [row, _] = rows_of(statement_csv.as_csv(statements.statement(person.organization, THIS)))
    assert row == {
        "month": month(THIS), "kind": "usage", "model": "small", "batch": "no", "member": person.user.called,
        "member_id": person.user.public_id, "key": "test", "key_id": person.key.public_id, "price_list": str(price.pk),
        "price_input": "0.100000", "price_cached": "0.000000", "price_output": "1.000000", "requests": "1",
        "estimated": "0", "input": "1500000", "cached": "0", "output": "0", "cost": "1.5000000000", "currency": "USD",
    }  # fmt: skip


def test_months_are_those_of_utc_by_when_a_request_was_accepted(person: Person, settings: Any) -> None:
    """S21: the last millisecond of a month, and the first of the next."""
    settings.TIME_ZONE = "Pacific/Auckland"
    begins = midnight(THIS.start)
    spend(person, "1", at=begins - timedelta(milliseconds=1))
    spend(person, "2", at=begins)
    assert statements.statement(person.organization, LAST).total.cost == 1
    assert statements.statement(person.organization, THIS).total.cost == 2


def test_a_late_refund_belongs_to_the_month_of_its_request(person: Person) -> None:
    id = spend(person, "1", at=midnight(LAST.start))
    refund(id, Decimal("0.25"))
    assert statements.statement(person.organization, LAST).total.cost == Decimal("0.75")
    assert statements.statement(person.organization, THIS).lines == ()


def test_the_running_month_and_one_with_open_requests_are_preliminary(person: Person) -> None:
    model = make_model()
    assert statements.statement(person.organization, THIS).preliminary
    assert not statements.statement(person.organization, LAST).preliminary
    make_request(
        person, model, id=spend_id(LAST), status="running", finished_at=None, released_at=None, finish_reason=""
    )
    assert statements.statement(person.organization, LAST).preliminary
    assert not statements.statement(person.organization, Period.month(LAST.start - timedelta(days=1))).preliminary


def spend_id(period: Period) -> Any:
    return period.ids[0]


def test_months_begin_with_the_organization_or_its_first_use(person: Person) -> None:
    assert statements.months(person.organization) == [THIS]
    spend(person, "1", at=midnight(THIS.start) - timedelta(days=62))
    assert [month(each) for each in statements.months(person.organization)][:2] == [month(THIS), month(LAST)]
    assert 3 <= len(statements.months(person.organization)) <= 4


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-11", date(2026, 11, 1)), ("2026-13", None), ("2026-1", None), ("2026-11-01", None), ("202611-", None),
        ("", None), ("\uff19\uff1999-11", None), ("0000-01", None), ("2026-W1", None), ("\0", None),
    ],
)  # fmt: skip
def test_what_is_a_month(text: str, day: date | None) -> None:
    assert statements.month_of(text) == day


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2", "@sum", "\ttab", 'fine, “quoted” "and"\nso'])
def test_a_cell_that_a_spreadsheet_would_run_is_neutralised(person: Person, name: str) -> None:
    User.objects.filter(pk=person.user.pk).update(name=name)
    change_api_key(person.user, person.key.pk, Terms(name), COMMAND)
    refund(spend(person, "1", model=name), Decimal("0.5"))
    text = statement_csv.as_csv(statements.statement(person.organization, THIS))
    rows = rows_of(text)
    for row in rows[:-1]:
        for column in ("model", "member", "key"):
            assert row[column].lstrip("'") == name
            assert row[column][0] not in "=+-@\t"
    assert {row["cost"] for row in rows} == {"1.0000000000", "-0.5000000000", "0.5000000000"}  # numbers stay numbers


def test_the_pages(person: Person) -> None:
    spend(person, "1.0000121")
    client = signed_in(person)
    html = client.get("/usage/statements/").content.decode()
    assert f"/usage/statements/{month(THIS)}" in html
    page = client.get(f"/usage/statements/{month(THIS)}")
    assert page.status_code == 200
    assert "1.000012" in page.content.decode()
    assert "preliminary" in page.content.decode()
    assert page["Cache-Control"] == "no-store, private"
    answer = client.get(f"/usage/statements/{month(THIS)}.csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == f'attachment; filename="statement-{month(THIS)}.csv"'
    assert rows_of(answer.content.decode())[-1]["kind"] == "total, preliminary"


@pytest.mark.parametrize("what", ["2031-01", "1999-12", "x", "2026-13", "2026-11.pdf", "2026-11.csv.csv", "%00"])
def test_other_months_are_not_found(person: Person, what: str) -> None:
    assert signed_in(person).get(f"/usage/statements/{what}").status_code == 404
    assert signed_in(person).post(f"/usage/statements/{month(THIS)}").status_code == 405


def test_s32_only_those_who_see_the_billing_see_statements(make_person: Any) -> None:
    people = {name: make_person(f"{name}@example.com") for name in ("owner", "admin", "member", "billing", "stranger")}
    acme = make_organization(people["owner"], admin=people["admin"], member=people["member"], billing=people["billing"])
    spend(people["member"], "12.34", organization_id=acme.pk)
    expected = {"owner": 200, "billing": 200, "admin": 403, "member": 403, "stranger": 404}
    for name, status in expected.items():
        for address in (
            "/usage/statements/",
            f"/usage/statements/{month(THIS)}",
            f"/usage/statements/{month(THIS)}.csv",
        ):
            answer = signed_in(people[name]).get(address, {"organization": acme.public_id})
            assert answer.status_code == status, (name, address)
            assert ("12.34" in answer.content.decode()) == (status == 200 and address != "/usage/statements/")
    own = signed_in(people["stranger"]).get(f"/usage/statements/{month(THIS)}")
    assert own.status_code == 200
    assert "12.34" not in own.content.decode()
    for wrong in ("org_x", acme.public_id.upper(), "\0"):
        assert signed_in(people["owner"]).get("/usage/statements/", {"organization": wrong}).status_code == 404
    assert Client().get("/usage/statements/").status_code == 302


@pytest.mark.parametrize(
    ("cost", "text"),
    [("0", "0.00"), ("1234.5", "1,234.50"), ("0.0000000001", "0.0000000001"), ("-0.25", "-0.25"), ("10", "10.00")],
)
def test_money_is_shown_to_the_last_digit(cost: str, text: str) -> None:
    assert money(Decimal(cost)) == text


def test_amounts_of_a_statement_have_equally_many_decimal_places(person: Person) -> None:
    spend(person, "10.56843")
    spend(person, "0.499919", model="large")
    page = signed_in(person).get(f"/usage/statements/{month(THIS)}").content.decode()
    shown = re.findall(r"\d+\.\d+(?=</td>)", page)
    assert {"10.568430", "0.499919", "11.068349"} <= set(shown)
    assert {len(each.partition(".")[2]) for each in shown} == {6}


def test_the_staff_sees_statements_of_all(person: Person, make_person: Any) -> None:
    spend(person, "12.34")
    staff = signed_in(make_person("root@example.com", superuser=True))
    html = staff.get("/admin/billing/statement/", {"q": person.organization.public_id}).content.decode()
    where = f"/admin/billing/statement/{person.organization.pk}/months/{month(THIS)}"
    assert f"{where}/" in html
    page = staff.get(f"{where}/").content.decode()
    assert "12.34" in page
    assert f"{where}.csv/" in page
    answer = staff.get(f"{where}.csv/")
    assert answer["Content-Type"].startswith("text/csv")
    assert "12.3400000000" in answer.content.decode()
    own = f"/admin/billing/statement/{person.organization.public_id}/change/"
    assert "12.34" in staff.get(own).content.decode()
    for wrong in (f"{where}.pdf/", f"/admin/billing/statement/{person.user.pk}/months/{month(THIS)}/", f"{where}x/"):
        assert staff.get(wrong).status_code == 404
    looker = make_person("looker@example.com")
    looker.user.is_staff = True
    looker.user.save()
    assert signed_in(looker).get(f"{where}/").status_code == 403
