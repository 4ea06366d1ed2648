"""The ledger's table: by month of acceptance, append-only in every part of it, and no row is ever refused."""

import importlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from chatsite.errors import NotFound
from chatsite.ids import first_id, new_id
from inference.protocol import Usage
from quotas import periods, selectors, services
from quotas.models import LedgerEntry
from quotas.periods import Period
from quotas.protocol import Prices
from quotas.services import Times

pytestmark = pytest.mark.django_db
PRICES = Prices(Decimal("0.10"), Decimal("0.01"), Decimal("0.40"))
FAR = date(2031, 5, 1)


def record(request_id: UUID, organization: UUID | None = None, **changes: Any) -> Decimal:
    values: dict[str, Any] = {
        "request_id": request_id,
        "organization_id": organization or new_id(),
        "user_id": new_id(),
        "api_key_id": None,
        "model": "small",
        "prices": PRICES,
        "usage": Usage(812, 640, 245),
        "outcome": "succeeded",
        "source": "engine",
    }
    return services.record_usage(**{**values, **changes})


def made(moment: datetime) -> UUID:
    return UUID(int=first_id(moment).int | new_id().int & (1 << 64) - 1)


def tables() -> dict[str, int]:
    """Partitions, and how many rows each has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text, count(*) FROM quotas_ledgerentry GROUP BY 1")
        return dict(cursor.fetchall())


def partitions() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'quotas_ledgerentry'::regclass"
        )
        return {name for (name,) in cursor.fetchall()}


def test_a_row_has_price_lane_and_times() -> None:
    request_id = new_id()
    cost = record(request_id, price=7, lane="paid", times=Times(12, 345, 6789))
    row = LedgerEntry.objects.get(request_id=request_id)
    assert row.cost == cost == Decimal("0.0001216")
    assert (row.price, row.lane, row.queue_ms, row.ttft_ms, row.total_ms) == (7, "paid", 12, 345, 6789)


def test_batch_costs_half() -> None:
    assert record(new_id(), lane="batch") == record(new_id(), lane="free") / 2


def test_a_row_lies_in_the_month_of_its_request_in_utc() -> None:
    now = datetime.now(UTC)
    record(made(now))
    assert tables() == {f"quotas_ledgerentry_{now:%Y_%m}": 1}
    assert partitions() >= {"quotas_ledgerentry_rest", f"quotas_ledgerentry_{now:%Y_%m}"}


def test_what_has_no_partition_is_kept_and_moves_when_its_month_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also ids of the far future, of the first days and not of that kind at all."""
    last, first = datetime(2031, 4, 30, 23, 59, 59, 999000, tzinfo=UTC), datetime(2031, 5, 1, tzinfo=UTC)
    ids = [
        made(first),
        made(last),
        made(datetime(2031, 5, 31, 23, 59, 59, tzinfo=UTC)),
        UUID(int=0),
        UUID(int=2**128 - 1),
    ]
    for each in ids:
        record(each)
    assert tables() == {"quotas_ledgerentry_rest": 5}
    monkeypatch.setattr("quotas.ledger.today", lambda: FAR)
    assert services.make_partitions(1) == [FAR, date(2031, 6, 1)]
    assert tables() == {"quotas_ledgerentry_rest": 3, "quotas_ledgerentry_2031_05": 2}
    assert services.make_partitions(1) == []
    record(made(first))
    record(ids[0])
    assert tables() == {"quotas_ledgerentry_rest": 3, "quotas_ledgerentry_2031_05": 3}
    for part in ("quotas_ledgerentry_2031_05", "quotas_ledgerentry_rest", "quotas_ledgerentry"):
        for change in ("UPDATE {} SET cost = 0", "DELETE FROM {}", "TRUNCATE {}"):
            with connection.cursor() as cursor, pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
                cursor.execute(change.format(part))


def test_the_command_makes_months(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotas.ledger.today", lambda: FAR)
    said = StringIO()
    call_command("ledgerpartitions", "--ahead", "1", stdout=said)
    call_command("ledgerpartitions", "--ahead", "0", stdout=said)
    assert said.getvalue() == "Made: 2031-05, 2031-06\nAll are there.\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "gift"},
        {"output": -1},
        {"cost": -1},
        {"kind": "refund", "cost": 1},
        {"kind": "refund", "output": 5, "cost": -1},
    ],
)
def test_rows_that_cannot_be_are_refused_by_the_database(wrong: dict[str, Any]) -> None:
    whose = {"request_id": new_id(), "organization_id": new_id(), "user_id": new_id(), "model": "m"}
    row = {**whose, "input": 0, "cached": 0, "output": 0, "cost": 0, "outcome": "succeeded", "source": "engine"}
    with pytest.raises(DatabaseError), transaction.atomic():
        LedgerEntry.objects.create(**{**row, **wrong})


def test_what_was_spent_is_told_by_period_user_and_key() -> None:
    organization, user, key = new_id(), new_id(), new_id()
    march, april = datetime(2026, 3, 31, 23, 59, 59, 999000, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    record(made(march), organization)
    record(made(april), organization, user_id=user, usage=Usage(10, 0, 5))
    record(made(april), organization, api_key_id=key, usage=Usage(1, 0, 1))
    record(made(april), new_id())
    period = Period.month(date(2026, 4, 15))
    spent = selectors.spent(organization, period)
    assert (spent.tokens, spent.cost) == (17, Decimal("0.0000035"))
    assert selectors.spent(organization, period, user=user).tokens == 15
    assert selectors.spent(organization, period, keys=[key]).tokens == 2
    assert selectors.spent(organization, period, keys=[]).tokens == 0
    assert selectors.spent(organization, Period.month(date(2026, 3, 1))).tokens == 1057
    assert selectors.spent(organization, Period.rolling(2, date(2026, 4, 1))).tokens == 1057 + 17


@pytest.mark.parametrize(("day", "start", "end"), [
    (date(2026, 12, 31), date(2026, 12, 1), date(2027, 1, 1)),
    (date(2028, 2, 29), date(2028, 2, 1), date(2028, 3, 1)),
])  # fmt: skip
def test_months(day: date, start: date, end: date) -> None:
    assert (Period.month(day).start, Period.month(day).end) == (start, end)
    assert periods.day_number(date(1970, 1, 2)) == 1
    assert Period.rolling(1, day) == Period(day, day + periods._DAY)


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    """Tables that a test makes go with its transaction."""
    yield
    assert not connection.needs_rollback


BEFORE = """
DROP TABLE quotas_ledgerentry CASCADE;
DROP FUNCTION quotas_ledger_is_append_only, quotas_ledger_make_month, quotas_ledger_first_id;
CREATE TABLE quotas_ledgerentry (
    id bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, request_id uuid NOT NULL, kind varchar(16) NOT NULL,
    seq smallint NOT NULL, organization_id uuid NOT NULL, user_id uuid NOT NULL, api_key_id uuid,
    model varchar(100) NOT NULL, input integer NOT NULL, cached integer NOT NULL, output integer NOT NULL,
    cost numeric(20, 10) NOT NULL, outcome varchar(16) NOT NULL, source varchar(16) NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT one_ledger_row_per_use UNIQUE (request_id, kind, seq)
);
CREATE INDEX ledger_by_organization ON quotas_ledgerentry (organization_id, created_at);
"""


def test_rows_from_before_the_months_are_all_kept() -> None:
    migration = importlib.import_module("quotas.migrations.0009_ledger_by_month")
    moments = [datetime(2025, 11, 30, 23, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), datetime.now(UTC)]
    ids = [*map(made, moments), UUID(int=5)]
    with connection.cursor() as cursor:
        cursor.execute(BEFORE)
        cursor.execute(migration.LEDGER.sql)
        for number, request_id in enumerate(ids):
            cursor.execute(
                "INSERT INTO quotas_ledgerentry (request_id, kind, seq, organization_id, user_id, model, input, cached,"
                " output, cost, outcome, source, created_at)"
                " VALUES (%s, 'usage', 0, %s, %s, 'm', 1, 0, %s, 0.1, 'failed', 'engine', now())",
                [request_id, new_id(), new_id(), number],
            )
        for part in (migration.FREE, migration.PARTITIONED, migration.LEDGER.sql, migration.FUNCTIONS, migration.MOVED):
            cursor.execute(part)
    rows = list(LedgerEntry.objects.order_by("id").values_list("id", "request_id", "output", "cost"))
    assert rows == [(number + 1, each, number, Decimal("0.1")) for number, each in enumerate(ids)]
    months = [f"quotas_ledgerentry_{moment:%Y_%m}" for moment in moments]
    assert tables() == {**dict.fromkeys(months, 1), "quotas_ledgerentry_rest": 1}
    record(new_id())
    assert LedgerEntry.objects.latest("id").pk == len(ids) + 1
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        LedgerEntry.objects.update(cost=0)


def test_what_is_annulled_sums_to_nothing_once() -> None:
    request_id, organization = new_id(), new_id()
    cost = record(request_id, organization)
    services.refund(request_id, cost / 2)
    row = services.annul(request_id)
    assert row is not None
    assert (row.kind, row.input, row.cached, row.output, row.cost) == ("correction", -812, -640, -245, -cost / 2)
    assert services.annul(request_id) is None
    assert selectors.cost_of(request_id) == 0
    with pytest.raises(NotFound):
        services.annul(new_id())
