"""What an organization used in a month, as the ledger has it, to the last digit.

A month is that of UTC in which a request was accepted; corrections and refunds belong to the month of their request,
whenever they are made.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from typing import Final, cast
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django.utils.module_loading import import_string

from chatsite.accounts.models import Organization
from chatsite.ids import made_at
from quotas.billing.people import Names, names
from quotas.counters import Requests
from quotas.models import LedgerEntry, Price
from quotas.periods import Period, today
from quotas.protocol import Prices
from quotas.scripts import read_sql

KINDS: Final = {
    LedgerEntry.Kind.USAGE.value: "use",
    LedgerEntry.Kind.CORRECTION.value: "correction",
    LedgerEntry.Kind.REFUND.value: "refund",
}


@dataclass(frozen=True)
class Sum:
    """Of several rows of the ledger. `requests` counts those of use, and not what corrects them; `estimated` those of
    them whose counts are an estimate."""

    requests: int = 0
    estimated: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(
            self.requests + other.requests,
            self.estimated + other.estimated,
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.cost + other.cost,
        )


@dataclass(frozen=True)
class Line:
    """One line of a statement. `price`: the id of the price list; None: of models.toml, before there were versions."""

    kind: str
    model: str
    batch: bool
    user_id: UUID
    api_key_id: UUID | None
    price: int | None
    entries: int
    sum: Sum

    @property
    def kind_text(self) -> str:
        return KINDS.get(self.kind, self.kind)


@dataclass(frozen=True)
class Statement:
    """`preliminary`: more may come, as the month is running or requests of it are."""

    organization: Organization
    period: Period
    lines: tuple[Line, ...]
    names: Names
    prices: Mapping[int, Prices]
    preliminary: bool
    made: datetime

    @property
    def month(self) -> str:
        return f"{self.period.start:%Y-%m}"

    @property
    def currency(self) -> str:
        return str(settings.CURRENCY)

    @cached_property
    def total(self) -> Sum:
        return total(self.lines)

    @cached_property
    def by_kind(self) -> list[tuple[str, Sum]]:
        return self._by(lambda line: line.kind, lambda line: line.kind_text)

    @cached_property
    def by_model(self) -> list[tuple[str, Sum]]:
        return self._by(lambda line: line.model, lambda line: line.model)

    @cached_property
    def by_member(self) -> list[tuple[str, Sum]]:
        return self._by(lambda line: line.user_id, self.member)

    @cached_property
    def by_key(self) -> list[tuple[str, Sum]]:
        return self._by(lambda line: line.api_key_id, self.key)

    def member(self, line: Line) -> str:
        return self.names.member(line.user_id)

    def key(self, line: Line) -> str:
        """Empty for what was sent from the pages."""
        return self.names.key(line.api_key_id) if line.api_key_id else ""

    def _by(self, group: Callable[[Line], object], name: Callable[[Line], str]) -> list[tuple[str, Sum]]:
        """The dearest first."""
        sums: dict[object, tuple[str, Sum]] = {}
        for line in self.lines:
            _, known = sums.get(group(line), ("", Sum()))
            sums[group(line)] = (name(line), known + line.sum)
        return sorted(sums.values(), key=lambda each: (-each[1].cost, each[0]))


def total(lines: Iterable[Line]) -> Sum:
    return sum((each.sum for each in lines), Sum())


def statement(organization: Organization, period: Period) -> Statement:
    """One query over the ledger's rows of the month."""
    lines = _lines(organization.pk, period)
    keys = {each.api_key_id for each in lines if each.api_key_id}
    used = {each.price for each in lines if each.price is not None}
    prices = {row.pk: Prices(row.input, row.cached, row.output) for row in Price.objects.filter(pk__in=used)}
    return Statement(
        organization,
        period,
        tuple(lines),
        names(organization.pk, {each.user_id for each in lines}, keys),
        prices,
        preliminary=is_preliminary(organization.pk, period),
        made=timezone.now(),
    )


def _lines(organization_id: UUID, period: Period) -> list[Line]:
    first, last = period.ids
    given = {"organization": organization_id, "first": first, "last": last}
    with connection.cursor() as cursor:
        cursor.execute(read_sql("statement"), given)
        return [_line(*row) for row in cursor.fetchall()]


def _line(
    kind: str,
    model: str,
    batch: bool,
    user_id: UUID,
    api_key_id: UUID | None,
    price: int | None,
    entries: int,
    estimated: int,
    input: Decimal,
    cached: Decimal,
    output: Decimal,
    cost: Decimal,
) -> Line:
    requests = entries if kind == LedgerEntry.Kind.USAGE else 0
    found = Sum(requests, estimated, int(input), int(cached), int(output), cost)
    return Line(kind, model, batch, user_id, api_key_id, price, entries, found)


def is_preliminary(organization_id: UUID, period: Period) -> bool:
    """Whether the month is running, or requests that were accepted in it are."""
    if period.end > today():
        return True
    first, last = period.ids
    requests = _requests_of()(organization_id)
    return any(first <= id < last for id in (*(each.id for each in requests.open), *requests.waiting))


@cache
def _requests_of() -> Callable[[UUID], Requests]:
    return cast(Callable[[UUID], Requests], import_string(settings.OPEN_REQUESTS))


def months(organization: Organization) -> list[Period]:
    """Those that there are statements of, the newest first: from when the organization, or its first use, is."""
    first = LedgerEntry.objects.filter(organization_id=organization.pk).order_by("request_id")
    oldest = first.values_list("request_id", flat=True).first()
    begun = organization.created_at if oldest is None else min(organization.created_at, made_at(oldest))
    found, month, start = [], Period.month(today()), Period.month(begun.date()).start
    while month.start >= start:
        found.append(month)
        month = Period.month(month.start - timedelta(days=1))
    return found


def month_of(text: str) -> date | None:
    """`2026-11` as its first day; None for anything else."""
    if len(text) != len("2026-11"):
        return None
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    return found if f"{found:%Y-%m}" == text else None
