"""Writing to the ledger: what was used, what was wrong about it, and what is given back."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from chatsite.errors import InvalidInput, NotFound
from quotas import counters
from quotas.models import LedgerEntry
from quotas.periods import Period, today
from quotas.protocol import COST_STEP, Prices, TokenUsage, cost
from quotas.scripts import read_sql

MONTHS_AHEAD = 3
_RECORD_USAGE = read_sql("record_usage")  # a third of what the ORM takes


@dataclass(frozen=True)
class Times:
    """Milliseconds from acceptance to the first claim, to the first token, to the end; None where it did not come."""

    queue: int | None = None
    first_token: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Correction:
    """What the engine's or our counts were wrong by; below zero where too much was written down."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)


def record_usage(
    *,
    request_id: UUID,
    organization_id: UUID,
    user_id: UUID,
    api_key_id: UUID | None,
    model: str,
    prices: Prices,
    usage: TokenUsage,
    outcome: str,
    source: str,
    price: int | None = None,
    lane: str = "",
    times: Times | None = None,
) -> Decimal:
    """Writes the request's one row of usage, in the caller's transaction. A second one for the request is ignored.

    `price`: the version that `prices` are of. Returns the cost.
    """
    total = cost(usage, prices, lane)
    times = times or Times()
    row: dict[str, Any] = {
        "request_id": request_id,
        "kind": LedgerEntry.Kind.USAGE.value,
        "seq": 0,
        "organization_id": organization_id,
        "user_id": user_id,
        "api_key_id": api_key_id,
        "model": model,
        "lane": lane,
        "input": usage.input,
        "cached": usage.cached,
        "output": usage.output,
        "price": price,
        "cost": total,
        "outcome": outcome,
        "source": source,
        "queue_ms": times.queue,
        "ttft_ms": times.first_token,
        "total_ms": times.total,
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_USAGE, row)
    return total


def refund(request_id: UUID, amount: Decimal) -> LedgerEntry:
    """Gives back a part of what a request cost, as a row of its own; budgets have it back at once.

    Raises NotFound, InvalidInput (nothing, or more than is left of its cost), RedisError; then nothing was written.
    """
    if amount <= 0 or amount != amount.quantize(COST_STEP):
        raise InvalidInput("A refund is more than 0, and has at most ten decimals.", param="amount")
    with transaction.atomic():
        usage, rows = _rows(request_id)
        left = sum((each.cost for each in rows), Decimal(0))
        if amount > left:
            raise InvalidInput(f"Only {left.normalize():f} of what the request cost is left.", param="amount")
        return _add(usage, LedgerEntry.Kind.REFUND, Correction(cost=-amount))


def correct(request_id: UUID, wrong: Correction) -> LedgerEntry:
    """Adds a row with what the counts of a request were wrong by.

    Raises NotFound, InvalidInput (something would be below zero), RedisError; then nothing was written.
    """
    with transaction.atomic():
        usage, rows = _rows(request_id)
        for name in ("input", "cached", "output", "cost"):
            if sum((getattr(each, name) for each in rows), getattr(wrong, name)) < 0:
                raise InvalidInput("No more can be taken back than was written down.", param=name)
        return _add(usage, LedgerEntry.Kind.CORRECTION, wrong)


def annul(request_id: UUID) -> LedgerEntry | None:
    """Takes back all that a request was charged: its caller got nothing for it. None where nothing is left of it.

    Raises NotFound while it is not settled, RedisError; then nothing was written, and it may be repeated.
    """
    with transaction.atomic():
        usage, rows = _rows(request_id)
        left = {name: sum((getattr(each, name) for each in rows), 0) for name in ("input", "cached", "output", "cost")}
        if not any(left.values()):
            return None
        return _add(usage, LedgerEntry.Kind.CORRECTION, Correction(**{name: -value for name, value in left.items()}))


def _rows(request_id: UUID) -> tuple[LedgerEntry, list[LedgerEntry]]:
    """The row of usage, which is locked against others who would change the sum, and all rows. Raises NotFound."""
    with connection.cursor() as cursor:
        # An advisory lock: rows of the ledger cannot be locked for an update that is forbidden to them.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"ledger {request_id}"])
    rows = list(LedgerEntry.objects.filter(request_id=request_id))
    usage = next((each for each in rows if each.kind == LedgerEntry.Kind.USAGE), None)
    if usage is None:
        raise NotFound("The ledger has no such request.")
    return usage, rows


def _add(usage: LedgerEntry, kind: LedgerEntry.Kind, change: Correction) -> LedgerEntry:
    last = LedgerEntry.objects.filter(request_id=usage.request_id, kind=kind).aggregate(last=Max("seq"))["last"]
    counters.forget(usage.organization_id)  # also before: when Redis is away, nothing is written
    row = LedgerEntry.objects.create(
        request_id=usage.request_id,
        kind=kind,
        seq=0 if last is None else last + 1,
        organization_id=usage.organization_id,
        user_id=usage.user_id,
        api_key_id=usage.api_key_id,
        model=usage.model,
        lane=usage.lane,
        input=change.input,
        cached=change.cached,
        output=change.output,
        price=usage.price,
        cost=change.cost,
        outcome=usage.outcome,
        source=usage.source,
    )
    transaction.on_commit(partial(counters.forget, usage.organization_id))
    return row


def costs_of(request_ids: Collection[UUID]) -> Mapping[UUID, Decimal]:
    """What the requests' usage cost, of those that are settled."""
    rows = LedgerEntry.objects.filter(request_id__in=request_ids, kind=LedgerEntry.Kind.USAGE)
    return dict(rows.values_list("request_id", "cost"))


def make_partitions(ahead: int = MONTHS_AHEAD) -> list[date]:
    """Makes the ledger's partitions of this month and of so many to come; returns those that were not there.

    Waits two seconds for others at most, as settlements wait meanwhile. Raises DatabaseError: then it may be repeated.
    """
    made, month = [], Period.month(today())
    for _ in range(ahead + 1):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute("SELECT quotas_ledger_make_month(%s)", [month.start])
            if cursor.fetchone() == (True,):
                made.append(month.start)
        month = Period.month(month.end)
    return made
