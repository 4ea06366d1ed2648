"""Identifiers: UUIDv7 inside, a prefixed form (`msg_0193...`) in bodies, paths and lists."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_id() -> UUID:
    """A new UUIDv7: unique, and sorted by the time it was made."""
    return uuid7()


def first_id(moment: datetime) -> UUID:
    """The smallest UUIDv7 of a moment: with it an index on ids finds rows by time."""
    milliseconds = max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


def made_at(value: UUID) -> datetime:
    """When a UUIDv7 was made, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=value.int >> 80)


def public_id(prefix: str, value: UUID) -> str:
    """The form that callers see, such as `conv_01936b5e-...`."""
    return f"{prefix}_{value}"


def parse_id(prefix: str, text: str) -> UUID | None:
    """The UUID behind `text`, or None when it is not an id of that kind."""
    head, separator, tail = text.partition("_")
    if head != prefix or not separator or len(tail) != 36:
        return None
    try:
        value = UUID(tail)
    except ValueError:
        return None
    return value if str(value) == tail else None
