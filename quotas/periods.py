"""Days and months of budgets, all in UTC. Pure."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from chatsite.ids import first_id, made_at

MAX_ROLLING_DAYS = 90
_FIRST = date(1970, 1, 1)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Period:
    """Whole days: from `start` to before `end`. What belongs to it is told by the ids of its requests."""

    start: date
    end: date

    @property
    def ids(self) -> tuple[UUID, UUID]:
        """The smallest UUIDv7 of it, and the smallest behind it."""
        return first_id(midnight(self.start)), first_id(midnight(self.end))

    @classmethod
    def month(cls, day: date) -> "Period":
        """The calendar month of a day."""
        start = day.replace(day=1)
        return cls(start, (start + timedelta(days=31)).replace(day=1))

    @classmethod
    def rolling(cls, days: int, day: date) -> "Period":
        """So many days up to and with `day`."""
        return cls(day - (days - 1) * _DAY, day + _DAY)


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def day_number(day: date) -> int:
    """Days since 1970, as counters in Redis have them."""
    return (day - _FIRST).days


def day_of(request_id: UUID) -> date:
    """The day to which a request belongs: that on which its id was made."""
    return made_at(request_id).date()


def today() -> date:
    return datetime.now(UTC).date()
