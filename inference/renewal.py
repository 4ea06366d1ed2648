"""Keeps the reservations of requests that are still open when their reservation's own life ends.

A reservation lives as long as its request may wait in the queue, and no shorter than one renewal gives it. While a
model loads, and from one engine to the next, a request waits longer; without its reservation others would be admitted
in its place. Those of the batch lane, which may wait for long between two attempts, are looked after from their start
on; before it they have none.
"""

from datetime import timedelta
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client, run_pipeline
from inference.models import Lane, Request
from inference.redis import keys
from inference.reservations import HOLDS_NOTHING, LIFE_SECONDS
from quotas.services import renew_calls

EVERY_SECONDS = 3.0
AHEAD = timedelta(seconds=10)  # before its deadline a request is looked after: longer than a sweep is away
BATCH = 1000  # requests of one statement, and of one round trip


async def renew_waiting() -> None:
    """By one process at a time, however many call. Raises redis and database errors."""
    client = async_client()
    if not await client.set(keys.RENEWAL_LOCK, 1, nx=True, px=int(EVERY_SECONDS * 1000)):
        return
    last: UUID | None = None
    while rows := await run_db(_overdue, last):
        for result in await run_pipeline(client, renew_calls(rows, LIFE_SECONDS)):
            if isinstance(result, Exception):
                raise result
        if len(rows) < BATCH:
            return
        last = rows[-1][1]


def _overdue(after: UUID | None) -> list[tuple[UUID, UUID]]:
    """(organization, request) of open requests that have waited for nearly as long as they may, or longer; and of all
    of the batch lane that have started."""
    due = Q(deadline__lt=timezone.now() + AHEAD) | Q(lane=Lane.BATCH)
    rows = Request.objects.filter(due, released_at=None, status__in=Request.TRANSITIONS.active).exclude(HOLDS_NOTHING)
    if after is not None:
        rows = rows.filter(id__gt=after)
    return list(rows.order_by("id").values_list("organization_id", "id")[:BATCH])
