"""Requests of the batch lane whose limits had no room when they were to start: they wait in PostgreSQL alone.

They are in no queue, hold no replica's slot and have nothing reserved. A runner that finds no room for one notes its
caller for a moment, and sets aside what else of that caller is to start meanwhile. The sweep enters them again behind
that: of some callers the oldest few in a second, of an organization no more than of another, however many keys it has.
So thousands that wait cost no more than a few, and hold up nobody.
"""

import random
from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Min, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client
from inference.models import Request, RequestStatus
from inference.redis import keys
from inference.reservations import HOLDS_NOTHING

AGAIN = 16  # of one organization and model in a sweep
MOST = 128  # of all
CALLERS, OF_ONE = 64, 8  # that have a turn in a sweep; of one organization
LISTED = 5000  # callers
MOST_OVER = 500  # that are to end
LEAST_SECONDS, MOST_SECONDS = 1.0, 10.0  # that a caller is noted

Caller = tuple[UUID, UUID, UUID | None]  # organization, user, API key
_random = random.Random()


def _caller(request: Request) -> Caller:
    return request.organization_id, request.user_id, request.api_key_id


async def note(request: Request, seconds: float) -> None:
    """Nothing else of its caller is to start for so long, within bounds. Raises redis errors."""
    within = min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
    await async_client().set(keys.held_back(*_caller(request)), 1, px=int(within * 1000), nx=True)


async def is_noted(request: Request) -> bool:
    """Raises redis errors."""
    return bool(await async_client().exists(keys.held_back(*_caller(request))))


async def due(older_than: timedelta) -> list[tuple[UUID, str, datetime | None]]:
    """(id, model, stop asked for at) of requests that wait without having started, and that a queue should know now.

    Raises redis and database errors.
    """
    before = timezone.now() - older_than
    found = await run_db(_over, before)
    callers = await _with_a_turn(await run_db(_callers, before))
    if callers:
        found += _fairly(await run_db(_first_of, callers, before))
    return [(each.id, each.model_id, each.cancel_requested_at) for each in found]


def _waiting(before: datetime) -> QuerySet[Request]:
    rows = Request.objects.filter(HOLDS_NOTHING, released_at=None, status=RequestStatus.QUEUED, created_at__lt=before)
    return rows.only("id", "organization_id", "user_id", "api_key_id", "model_id", "cancel_requested_at")


def _over(before: datetime) -> list[Request]:
    """Those that are to be stopped, and that have waited for as long as they may: whoever else waits."""
    over = Q(cancel_requested_at__isnull=False) | Q(deadline__lte=timezone.now())
    return list(_waiting(before).filter(over).order_by("deadline")[:MOST_OVER])


def _callers(before: datetime) -> list[Caller]:
    names = ("organization_id", "user_id", "api_key_id")
    rows = _waiting(before).values(*names).annotate(first=Min("created_at")).order_by("first")
    return list(rows.values_list(*names)[:LISTED])


async def _with_a_turn(callers: list[Caller]) -> list[Caller]:
    """Some of those that are not noted. By chance: by age, the same ones would come again as soon as they may."""
    noted = await async_client().mget([keys.held_back(*each) for each in callers]) if callers else []
    free = [caller for caller, there in zip(callers, noted, strict=True) if there is None]
    _random.shuffle(free)
    chosen, of = [], Counter[UUID]()
    for caller in free:
        of[caller[0]] += 1
        if of[caller[0]] <= OF_ONE:
            chosen.append(caller)
    return chosen[:CALLERS]


def _first_of(callers: list[Caller], before: datetime) -> list[Request]:
    """The oldest of each caller and model; first each one's first, then each one's second, and so on."""
    names = ("organization_id", "user_id", "api_key_id")
    theirs = Q(*(Q(*zip(names, caller, strict=True)) for caller in callers), _connector=Q.OR)
    place = Window(RowNumber(), partition_by=[*names, "model_id"], order_by=F("created_at").asc())
    rows = _waiting(before).filter(theirs, cancel_requested_at=None, deadline__gt=timezone.now())
    return list(rows.annotate(place=place).filter(place__lte=AGAIN).order_by("place", "created_at"))


def _fairly(rows: list[Request]) -> list[Request]:
    found, of = [], Counter[tuple[UUID, str]]()
    for row in rows:
        of[row.organization_id, row.model_id] += 1
        if of[row.organization_id, row.model_id] <= AGAIN:
            found.append(row)
    return found[:MOST]
