"""Replies of people who are disabled, and of API keys that are revoked, are stopped: the sweep looks each second.

A key that has expired or is paused is refused from then on, but what it has begun goes on.
"""

from uuid import UUID

import structlog
from django.db.models import Q

from chatsite.accounts import selectors as account_selectors
from chatsite.database import run_db
from inference import services
from inference.models import Request

BATCH = 500
log = structlog.get_logger(__name__)


async def stop_barred() -> None:
    """As if somebody had stopped each: its text is kept where it has a place, what was made is billed.

    Raises database errors.
    """
    found = await run_db(_barred)
    if found:
        log.info("replies of barred callers stopped", requests=[str(each) for each in found])
    for request_id in found:
        await services.cancel(request_id)


def _barred() -> list[UUID]:
    running = Request.objects.filter(released_at=None, status__in=Request.TRANSITIONS.active, cancel_requested_at=None)
    callers = set(running.values_list("user_id", "api_key_id").distinct())
    users = account_selectors.disabled_among({user_id for user_id, _ in callers})
    keys = account_selectors.revoked_among({key_id for _, key_id in callers if key_id is not None})
    if not users and not keys:
        return []
    return list(running.filter(Q(user_id__in=users) | Q(api_key_id__in=keys)).values_list("id", flat=True)[:BATCH])
