"""Spans of time that usage is asked for, all in UTC. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from chatsite.errors import InvalidInput
from chatsite.ids import first_id
from quotas.periods import Period, midnight

MAX_DAYS = 366
_DAY = timedelta(days=1)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(?P<zone>Z|[+-]\d{2}:\d{2})?", re.ASCII)
_PLUS_LOST = re.compile(r"[^ ]+ \d{2}:\d{2}", re.ASCII)  # a query's + stands for a space
_OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
_HOW = "Give a date (2026-01-31) or a time with its zone (2026-01-31T14:00:00Z)."


@dataclass(frozen=True)
class Span:
    """From `start` to before `end`, whole hours of UTC."""

    start: datetime
    end: datetime

    @property
    def ids(self) -> tuple[UUID, UUID]:
        """The smallest UUIDv7 of it, and the smallest behind it."""
        return first_id(self.start), first_id(self.end)

    @property
    def whole_days(self) -> bool:
        return self.start == midnight(self.start.date()) and self.end == midnight(self.end.date())

    @property
    def days(self) -> list[date]:
        """All that it touches, in order."""
        first, last = self.start.date(), (self.end - timedelta(microseconds=1)).date()
        return [first + number * _DAY for number in range((last - first).days + 1)]


def days_of(first: date, last: date) -> Span:
    """Both days included."""
    return Span(midnight(first), midnight(last + _DAY))


def this_month(today: date) -> Span:
    """All of it, also what is to come."""
    month = Period.month(today)
    return Span(midnight(month.start), midnight(month.end))


def last_month(today: date) -> Span:
    return this_month(today.replace(day=1) - _DAY)


def last_days(days: int, today: date) -> Span:
    """Today included."""
    return days_of(today - (days - 1) * _DAY, today)


def read_span(begin: str | None, end: str | None, today: date) -> Span:
    """The span of a query's `from` and `to`; without them from the first of this month to the end of today.

    A date at the end is included, a time is not. Raises InvalidInput.
    """
    start = _moment(begin, "from", last=False) if begin is not None else midnight(today.replace(day=1))
    stop = _moment(end, "to", last=True) if end is not None else max(midnight(today + _DAY), start + _DAY)
    if stop <= start:
        raise InvalidInput("The end is before the beginning: 'to' has to be later than 'from'.", param="to")
    if stop - start > MAX_DAYS * _DAY:
        raise InvalidInput(f"At most {MAX_DAYS} days can be asked for at once.", param="from")
    return Span(start, stop)


def _moment(text: str, name: str, *, last: bool) -> datetime:
    try:
        found = _parsed(text, name, last)
        in_time = _OLDEST <= found < datetime(9999, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"There is no such time as {text[:40]!r}. {_HOW}", param=name) from None
    if not in_time:
        raise InvalidInput("The time has to be from 1970 on, and before 9999.", param=name)
    if found.replace(minute=0, second=0, microsecond=0) != found:
        raise InvalidInput("Usage is kept by the hour: the time has to be a full hour in UTC.", param=name)
    return found


def _parsed(text: str, name: str, last: bool) -> datetime:
    """Raises ValueError, InvalidInput."""
    if _DATE.fullmatch(text):
        day = midnight(date.fromisoformat(text))
        return day + _DAY if last else day
    form = _TIME.fullmatch(text)
    if _PLUS_LOST.fullmatch(text):
        raise InvalidInput("In an address the + of a zone is written %2B.", param=name)
    if form is None:
        raise InvalidInput(f"This is no time. {_HOW}", param=name)
    if form["zone"] is None:
        raise InvalidInput(f"This time does not say its zone. {_HOW}", param=name)
    return datetime.fromisoformat(text).astimezone(UTC)
