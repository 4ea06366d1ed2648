"""Requests of the batch lane whose limits had no room when they were to start: they wait in PostgreSQL alone.

They are in no queue, hold no replica's slot and have nothing reserved. A runner that finds no room for one notes its
caller for a moment, and sets aside what else of that caller is to start meanwhile. The sweep enters them again behind
that: of each caller the oldest few in a second, so that thousands that wait cost no more than a few.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client
from inference.models import Request, RequestStatus
from inference.redis import keys
from inference.reservations import HOLDS_NOTHING

AGAIN = 16  # of one caller and model in a sweep
MOST = 500  # of all callers
LEAST_SECONDS, MOST_SECONDS = 1.0, 10.0  # that a caller is noted


def _key(request: Request) -> str:
    return keys.held_back(request.organization_id, request.user_id, request.api_key_id)


async def note(request: Request, seconds: float) -> None:
    """Nothing else of its caller is to start for so long, within bounds. Raises redis errors."""
    within = min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
    await async_client().set(_key(request), 1, px=int(within * 1000), nx=True)


async def is_noted(request: Request) -> bool:
    """Raises redis errors."""
    return bool(await async_client().exists(_key(request)))


async def due(older_than: timedelta) -> list[tuple[UUID, str, datetime | None]]:
    """(id, model, stop asked for at) of requests that wait without having started, and that a queue should know now.

    Raises redis and database errors.
    """
    found = await run_db(_oldest, timezone.now() - older_than)
    callers = list({_key(each) for each in found})
    noted = await async_client().mget(callers) if callers else []
    held = {caller for caller, there in zip(callers, noted, strict=True) if there is not None}
    now = timezone.now()
    return [
        (each.id, each.model_id, each.cancel_requested_at)
        for each in found
        if each.cancel_requested_at is not None or each.deadline <= now or _key(each) not in held
    ]


def _oldest(before: datetime) -> Sequence[Request]:
    """Of each caller and model those that come first; who is to be stopped does."""
    place = Window(
        RowNumber(),
        partition_by=["organization_id", "user_id", "api_key_id", "model_id"],
        order_by=[F("cancel_requested_at").asc(nulls_last=True), F("created_at").asc()],
    )
    rows = Request.objects.filter(
        HOLDS_NOTHING, released_at=None, status=RequestStatus.QUEUED, created_at__lt=before
    ).annotate(place=place)
    names = ("id", "organization_id", "user_id", "api_key_id", "model_id", "deadline", "cancel_requested_at")
    return list(rows.filter(place__lte=AGAIN).order_by("place", "created_at").only(*names)[:MOST])
