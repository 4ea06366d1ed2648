"""Replies of people who are disabled or no longer members, and of API keys that were revoked, are stopped.

The sweep asks each second who was barred since it asked last. So it makes no difference which process did it, or
whether that lives on; where nobody was barred no request is looked at. What a key has begun that is paused or
has expired goes on.
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db.models import Q
from django.utils import timezone

from chatsite.accounts import selectors as account_selectors
from chatsite.database import run_db
from inference import services
from inference.models import Request

BATCH = 500
OVERLAP = timedelta(minutes=1)  # transactions that take long, keys that a process remembers, clocks that differ
FIRST_LOOK = timedelta(days=1)  # of a process: others may have been down before
log = structlog.get_logger(__name__)
_looked_at: datetime | None = None


async def stop_barred() -> None:
    """As if somebody had stopped each: its text is kept where it has a place, what was made is billed.

    Raises database errors.
    """
    global _looked_at
    now = timezone.now()
    found = await run_db(_barred, (_looked_at or now - FIRST_LOOK) - OVERLAP)
    if found:
        log.info("replies of barred callers stopped", requests=[str(each) for each in found])
    for request_id in found:
        await services.cancel(request_id)
    if len(found) < BATCH:
        _looked_at = now


def _barred(since: datetime) -> list[UUID]:
    barred = account_selectors.barred_since(since)
    if not barred:
        return []
    theirs = Q(user_id__in=barred.users) | Q(api_key_id__in=barred.keys)
    for user_id, organization_id in barred.members:
        theirs |= Q(user_id=user_id, organization=organization_id)
    running = Request.objects.filter(released_at=None, status__in=Request.TRANSITIONS.active, cancel_requested_at=None)
    return list(running.filter(theirs).values_list("id", flat=True)[:BATCH])
