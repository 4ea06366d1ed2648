"""What was used, added up: from the rollups, and from the ledger where it is not rolled up yet.

At any moment the sum is that of the ledger, to the last digit.
"""

from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django.db import connection

from chatsite.errors import Unavailable
from quotas import rollups
from quotas.scripts import read_sql
from quotas.spans import Span

TRIES: Final = 50  # a reading is begun anew when the rollups have moved meanwhile


class Group(StrEnum):
    DAY = "day"
    MODEL = "model"
    KEY = "key"
    MEMBER = "member"


@dataclass(frozen=True)
class Use:
    """Sums. `cached` is part of `input`; `cost` is in the currency of the prices."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def __add__(self, other: "Use") -> "Use":
        return Use(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Use)))


@dataclass(frozen=True)
class Usage:
    """By the group's value: a date, a model's name, or the id of a user or an API key (None: a browser's session).

    Days are in order; of the others the one that cost most comes first.
    """

    groups: list[tuple[Any, Use]]

    @property
    def total(self) -> Use:
        return sum((use for _, use in self.groups), Use())


_DAY_OF_ID = (
    "DATE '1970-01-01' + (('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 86400000)::int"
)
_COLUMNS: Final = {Group.MODEL: "model", Group.KEY: "api_key_id", Group.MEMBER: "user_id"}


def usage(organization_id: UUID, span: Span, group: Group, *, user: UUID | None = None) -> Usage:
    """What an organization, or one user in it, has used in the span, by when requests were accepted.

    Raises Unavailable.
    """
    first, last = span.ids
    given: dict[str, Any] = {"organization": organization_id, "user": user, "first": first, "last": last}
    given |= {"start": span.start, "end": span.end}
    if span.whole_days:
        given |= {"start": span.start.date(), "end": span.end.date()}
    query = _query(group, whole_days=span.whole_days)
    for _ in range(TRIES):
        upto = rollups.mark()
        with connection.cursor() as cursor:
            cursor.execute(query, {**given, "upto": upto})
            rows = cursor.fetchall()
        [mark] = [requests for _, requests, *_, is_mark in rows if is_mark]
        if mark == upto:
            return Usage(_sorted([(name, Use(*sums)) for name, *sums, is_mark in rows if not is_mark], group))
    raise Unavailable("Usage is being counted. Try again shortly.", retry_after=2)


def _query(group: Group, *, whole_days: bool) -> str:
    """The row's id is a number in the query, and not asked for there: so the database sees how little is behind it."""
    by_day = "day" if whole_days else "(hour AT TIME ZONE 'UTC')::date"
    return read_sql("usage").format(
        of_rollup=_COLUMNS.get(group, by_day),
        of_ledger=_COLUMNS.get(group, _DAY_OF_ID),
        rollup="quotas_usageday" if whole_days else "quotas_usagehour",
        time="day" if whole_days else "hour",
    )


def _sorted(groups: list[tuple[Any, Use]], group: Group) -> list[tuple[Any, Use]]:
    if group is Group.DAY:
        return sorted(groups, key=lambda each: each[0])
    return sorted(groups, key=lambda each: (-each[1].cost, -each[1].tokens, str(each[0])))
