"""Ids of requests of any time."""

from datetime import datetime
from uuid import UUID

from chatsite.ids import first_id, new_id


def made(moment: datetime) -> UUID:
    """An id of that moment."""
    return UUID(int=first_id(moment).int | new_id().int & (1 << 64) - 1)
