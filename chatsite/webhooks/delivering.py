"""Delivers what waits: several at once, each a few times, with longer and longer pauses."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from redis.exceptions import LockError

from chatsite.redis import SCHEMA, sync_client
from chatsite.webhooks import signing
from chatsite.webhooks.models import Delivery
from chatsite.webhooks.sending import SECONDS, Sent, send
from chatsite.webhooks.services import secret_of

AT_ONCE: Final = 32  # of one run
OF_ONE_ORGANIZATION: Final = 4  # of them, so that those of one that hang do not hold up everybody's
PAUSES: Final = tuple(
    timedelta(seconds=each) for each in (10, 60, 300, 1800, 2 * 3600, 6 * 3600, 12 * 3600)
)  # after each attempt but the last
LEASE: Final = timedelta(seconds=3 * SECONDS)  # a worker that has not ended by then was killed
KEPT: Final = timedelta(days=30)
# In turns: of an organization the oldest of each webhook first, and of all the first of each organization. It gives ids
# alone, since numbered rows cannot be locked.
TURNS: Final = """
WITH of_webhook AS (
    SELECT delivery.id, delivery.due_at, endpoint.organization_id,
        row_number() OVER (PARTITION BY endpoint.id ORDER BY delivery.due_at, delivery.id) AS turn
    FROM webhooks_delivery AS delivery JOIN webhooks_endpoint AS endpoint ON endpoint.id = delivery.endpoint_id
    WHERE delivery.state = 'waiting' AND delivery.due_at <= %(now)s
), of_organization AS (
    SELECT id, due_at, row_number() OVER (PARTITION BY organization_id ORDER BY turn, due_at, id) AS turn
    FROM of_webhook
)
SELECT id FROM of_organization WHERE turn <= %(of_one)s ORDER BY turn, due_at, id LIMIT %(at_once)s
"""
LOCK: Final = f"{SCHEMA}:{{webhooks}}:delivering"
OFF: Final = "The webhook was switched off."
log = structlog.stdlib.get_logger(__name__)


def deliver_due() -> int:
    """Sends what is due, unless another worker does; returns how many attempts.

    One run at a time: receivers that hang would else hold up every worker. Where two run all the same, none is
    taken by both.
    """
    lock = sync_client().lock(LOCK, timeout=LEASE.total_seconds(), blocking=False)
    if not lock.acquire():
        return 0
    try:
        return _deliver()
    finally:
        with contextlib.suppress(LockError):  # it took longer than the lock lasts
            lock.release()


def _deliver() -> int:
    taken = _take()
    if not taken:
        return 0
    for delivery, sent in zip(taken, asyncio.run(_send_all(taken)), strict=True):
        _note(delivery, sent)
    return len(taken)


@transaction.atomic
def _take() -> list[Delivery]:
    """Takes them for as long as sending lasts: nobody else takes them meanwhile, and if we are killed, others do."""
    now = timezone.now()
    _end_inactive(now)
    due = Delivery.objects.filter(pk__in=_next(now), state=Delivery.State.WAITING, due_at__lte=now)
    taken = list(due.select_for_update(skip_locked=True, of=("self",)).select_related("endpoint"))
    for each in taken:
        each.attempts += 1
        each.due_at = now + LEASE
    Delivery.objects.bulk_update(taken, ["attempts", "due_at"])
    return taken


def _next(now: datetime) -> list[UUID]:
    """Of all that is due, however much one organization has waiting."""
    with connection.cursor() as cursor:
        cursor.execute(TURNS, {"now": now, "of_one": OF_ONE_ORGANIZATION, "at_once": AT_ONCE})
        return [id for (id,) in cursor.fetchall()]


def _end_inactive(now: datetime) -> None:
    off = Delivery.objects.filter(state=Delivery.State.WAITING, endpoint__active=False).exclude(event="test")
    off.update(state=Delivery.State.FAILED, outcome=OFF, ended_at=now)


async def _send_all(taken: Sequence[Delivery]) -> list[Sent]:
    return await asyncio.gather(*(_send_one(each) for each in taken))


async def _send_one(delivery: Delivery) -> Sent:
    body = delivery.body.encode()
    timestamp = int(timezone.now().timestamp())
    headers = signing.headers(secret_of(delivery.endpoint), delivery.public_id, timestamp, body)
    return await send(delivery.endpoint.url, body, headers, private=settings.WEBHOOKS_TO_PRIVATE_NETWORKS)


def _note(delivery: Delivery, sent: Sent) -> None:
    """Only where it is still ours: one that took too long is another's by now."""
    now = timezone.now()
    last = delivery.attempts > len(PAUSES)
    done = sent.ok or last
    state = Delivery.State.DELIVERED if sent.ok else Delivery.State.FAILED if last else Delivery.State.WAITING
    ours = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.WAITING, attempts=delivery.attempts)
    ours.update(
        state=state,
        status=sent.status,
        outcome=sent.outcome,
        took_ms=sent.took_ms,
        ended_at=now if done else None,
        due_at=now if done else now + PAUSES[delivery.attempts - 1],
    )
    log.info("webhook", delivery=delivery.public_id, status=sent.status, ok=sent.ok, attempt=delivery.attempts)


def forget_old() -> int:
    """Deletes what ended a month ago; returns how many."""
    old = Delivery.objects.filter(created_at__lt=timezone.now() - KEPT).exclude(state=Delivery.State.WAITING)
    return old.delete()[0]
