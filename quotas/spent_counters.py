"""What the counters in Redis say beside what the ledger says, while both go on changing.

What is settled in Redis was in the ledger before; and what the ledger has of requests that are released was settled in
Redis before. So what Redis has lies between two sums of the ledger: without the requests that are ended and not
released, as of a moment before Redis is asked, and with everything, as of a moment after. While nothing runs both are
the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from chatsite.accounts.models import ApiKey
from chatsite.redis import SCHEMA, sync_client
from quotas.budgets import Unit
from quotas.counters import Counter, Requests, spent_by_day
from quotas.models import LedgerEntry
from quotas.money import amount, units
from quotas.periods import MAX_ROLLING_DAYS, Period, day_number, today
from quotas.scripts import quota_prefix

TRIES: Final = 3
_ENDING: Final = ":counted"


@dataclass(frozen=True)
class Difference:
    """Tokens, or cost in the currency, of the days that budgets can ask for."""

    counter: Counter
    in_ledger: Decimal
    found: Decimal


@dataclass(frozen=True)
class _Ledger:
    """As the ledger has it: everything, and what of it Redis may not have been told."""

    all: int
    unreleased: int


def organizations() -> Iterator[UUID]:
    """Those that have counters in Redis. Raises RedisError."""
    pattern, start = f"{SCHEMA}:{{o:*}}{_ENDING}", len(f"{SCHEMA}:{{o:")
    for key in sync_client().scan_iter(match=pattern, count=1000):
        yield UUID(key.decode()[start : -len("}" + _ENDING)])


def compare(organization_id: UUID) -> tuple[int, list[Difference]]:
    """How many counters there were, and those that are not what the ledger says. Raises RedisError, DatabaseError."""
    looked_at, differences = _compare(organization_id)
    for _ in range(TRIES - 1):  # a counter may have been read anew, or a refund made, between two looks
        if not differences:
            break
        looked_at, differences = _compare(organization_id)
    return looked_at, differences


def _compare(organization_id: UUID) -> tuple[int, list[Difference]]:
    days = Period(today() - timedelta(days=MAX_ROLLING_DAYS - 1), today() + timedelta(days=2))
    wanted = _present(organization_id)
    before = {each: _of_ledger(organization_id, each, days) for each in wanted}
    found = _settled(organization_id, days)
    after = {each: _of_ledger(organization_id, each, days) for each in wanted}
    wrong = []
    for counter in wanted & found.keys():
        least, most = before[counter].all - before[counter].unreleased, after[counter].all
        if not least <= found[counter] <= most:
            wrong.append(Difference(counter, _shown(counter, most), _shown(counter, found[counter])))
    return len(wanted), sorted(wrong, key=lambda each: each.counter)


def _present(organization_id: UUID) -> set[Counter]:
    """Of users and keys that there are, and of the organization."""
    keys = {str(chain) for chain in _chains(organization_id).values()}
    return {
        counter
        for counter in _settled(organization_id, Period(today(), today()))
        if not counter[0].startswith("key:") or counter[0].removeprefix("key:") in keys
    }


def _settled(organization_id: UUID, days: Period) -> dict[Counter, int]:
    """What is settled of each counter on those days, as of one moment: what is taken without what is reserved."""
    fields: Mapping[bytes, bytes] = sync_client().hgetall(f"{quota_prefix(organization_id)}{_ENDING}")  # type: ignore[assignment]
    values = {name.decode(): int(value) for name, value in fields.items()}
    wanted = range(day_number(days.start), day_number(days.end))
    found = {}
    for name in values:
        subject, unit, *rest = name.split(" ")
        if not rest:
            taken = sum(values.get(f"{name} {day}", 0) for day in wanted)
            found[(subject, Unit(unit))] = taken - values.get(f"{name} held", 0)
    return found


def _of_ledger(organization_id: UUID, counter: Counter, days: Period) -> _Ledger:
    """The sum first: what is released after that was settled in Redis by then."""
    subject, unit = counter
    of_whom = _of_whom(organization_id, subject)
    sums = spent_by_day(organization_id, days, **of_whom).values()
    everything = sum(tokens if unit is Unit.TOKENS else units(cost) for tokens, cost in sums)
    requests: Requests = import_string(settings.OPEN_REQUESTS)(organization_id)
    rows = LedgerEntry.objects.filter(request_id__in=list(requests.ended), kind=LedgerEntry.Kind.USAGE)
    unreleased = [
        row.input + row.output if unit is Unit.TOKENS else units(row.cost) for row in rows if _is_of(row, of_whom)
    ]
    return _Ledger(everything, sum(unreleased))


def _of_whom(organization_id: UUID, subject: str) -> dict[str, Any]:
    """As `spent_by_day` takes it; empty for the whole organization."""
    kind, _, id = subject.partition(":")
    if kind == "user":
        return {"user": UUID(id)}
    if kind == "key":
        return {"keys": [key for key, chain in _chains(organization_id).items() if str(chain) == id]}
    return {}


def _is_of(row: LedgerEntry, of_whom: Mapping[str, Any]) -> bool:
    return row.user_id == of_whom.get("user", row.user_id) and row.api_key_id in of_whom.get("keys", [row.api_key_id])


def _chains(organization_id: UUID) -> dict[UUID, UUID]:
    return dict(ApiKey.objects.filter(organization_id=organization_id).values_list("id", "chain_id"))


def _shown(counter: Counter, value: int) -> Decimal:
    return Decimal(value) if counter[1] is Unit.TOKENS else amount(value)
