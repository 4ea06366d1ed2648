"""What was used is the sum of the ledger at any moment: rolled up, partly, or not at all."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatsite.errors import Unavailable
from chatsite.ids import new_id
from inference.protocol import Usage
from quotas import rollups, services
from quotas.models import LedgerEntry, UsageDay, UsageMark
from quotas.services import Correction
from quotas.spans import Span, days_of, read_span
from quotas.usage import Group, Use, usage
from tests.quotas.used import used

pytestmark = pytest.mark.django_db
LAST = datetime(2026, 3, 31, 23, 59, 59, 999_000, tzinfo=UTC)  # of a month
MARCH = days_of(date(2026, 3, 1), date(2026, 3, 31))


def of_ledger(organization: UUID, span: Span) -> Use:
    first, last = span.ids
    rows = LedgerEntry.objects.filter(organization_id=organization, request_id__gte=first, request_id__lt=last)
    found = Use()
    for row in rows:
        found += Use(int(row.kind == "usage"), row.input, row.cached, row.output, row.cost)
    return found


@pytest.fixture
def organization() -> UUID:
    """With rows around the end of a month: rolled up, behind the mark, late, corrected and refunded."""
    organization, key = new_id(), new_id()
    first = used(organization, LAST, usage=Usage(1001, 640, 245))
    used(organization, LAST - timedelta(hours=30), user_id=key, api_key_id=key, model="large")
    rollups.roll_up()
    used(organization, LAST + timedelta(milliseconds=1), usage=Usage(3, 0, 1))
    used(organization, LAST - timedelta(days=40))
    used(organization, LAST, api_key_id=key)
    services.correct(first, Correction(input=-1, cost=Decimal("-0.0000000001")))
    services.refund(first, Decimal("0.00001"))
    used(new_id(), LAST)  # somebody else's
    return organization


@pytest.mark.parametrize("group", Group)
@pytest.mark.parametrize(
    "span",
    [
        MARCH,
        days_of(date(2026, 4, 1), date(2026, 4, 30)),
        days_of(date(2026, 1, 1), date(2026, 12, 31)),
        read_span("2026-03-31T23:00:00Z", "2026-04-01T00:00:00Z", date(2026, 4, 1)),
        read_span("2026-03-30T10:00:00-07:00", "2026-04-01T09:00:00+02:00", date(2026, 4, 1)),
    ],
)
def test_the_total_is_the_ledgers_to_the_last_digit(organization: UUID, span: Span, group: Group) -> None:
    expected = of_ledger(organization, span)
    assert usage(organization, span, group).total == expected
    rollups.roll_up()
    assert usage(organization, span, group).total == expected
    rollups.rebuild()
    assert usage(organization, span, group).total == expected


def test_groups(organization: UUID) -> None:
    days = [day for day, _ in usage(organization, MARCH, Group.DAY).groups]
    assert days == [date(2026, 3, 30), date(2026, 3, 31)]
    models = usage(organization, MARCH, Group.MODEL).groups
    assert [(name, use.requests) for name, use in models] == [("tiny", 2), ("large", 1)]
    keys = dict(usage(organization, MARCH, Group.KEY).groups)
    assert {each.requests for each in keys.values()} == {1, 2}
    assert None in keys
    members = dict(usage(organization, MARCH, Group.MEMBER).groups)
    assert members[organization].requests == 2


def test_of_one_user_alone(organization: UUID) -> None:
    own = usage(organization, MARCH, Group.MODEL, user=organization)
    assert [name for name, _ in own.groups] == ["tiny"]
    assert usage(organization, MARCH, Group.DAY, user=new_id()).groups == []
    assert usage(organization, MARCH, Group.DAY, user=new_id()).total == Use()


def test_by_hours_the_day_is_that_of_utc(organization: UUID) -> None:
    span = read_span("2026-03-31T01:00:00Z", "2026-04-01T01:00:00Z", date(2026, 4, 1))
    rollups.roll_up()
    assert [day for day, _ in usage(organization, span, Group.DAY).groups] == [date(2026, 3, 31), date(2026, 4, 1)]


def test_rollups_that_move_meanwhile_are_read_again(organization: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    known, answers = rollups.mark(), [0, 1, 2]

    def stale() -> int:
        return answers.pop() if answers else known

    expected = of_ledger(organization, MARCH)
    monkeypatch.setattr(rollups, "mark", stale)
    assert usage(organization, MARCH, Group.DAY).total == expected
    assert not answers
    monkeypatch.setattr(rollups, "mark", lambda: -1)
    with pytest.raises(Unavailable, match="being counted"):
        usage(organization, MARCH, Group.DAY)


def test_without_a_mark_everything_is_read_from_the_ledger(organization: UUID) -> None:
    UsageMark.objects.all().delete()

    UsageDay.objects.all().delete()
    assert usage(organization, MARCH, Group.DAY).total == of_ledger(organization, MARCH)


def test_the_database_sees_how_little_is_behind_the_mark(organization: UUID) -> None:
    """The mark is written into the query: as a parameter, or as a query of its own, it would be guessed at."""
    rollups.roll_up()
    with CaptureQueriesContext(connection) as queries:
        usage(organization, MARCH, Group.DAY)
    assert f"id > {rollups.mark()} " in queries[-1]["sql"]


def test_sums_of_what_is_large(organization: UUID) -> None:
    for _ in range(3):
        used(organization, LAST, usage=Usage(2_000_000_000, 0, 2_000_000_000))
    total: Any = usage(organization, MARCH, Group.DAY).total
    rollups.roll_up()
    assert usage(organization, MARCH, Group.DAY).total == total
    assert total.output > 6_000_000_000
