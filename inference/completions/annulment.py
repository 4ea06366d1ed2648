"""An answer in one piece that fails costs nothing, also where some of its choices were complete by then."""

import asyncio
import time
from collections.abc import Iterable
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.errors import NotFound
from quotas import services as quota_services

WITHIN_SECONDS = 60.0  # all choices of a call that failed are being cancelled: they settle in a moment
STEP_SECONDS = 0.5
log = structlog.get_logger(__name__)


async def annul(requests: Iterable[UUID]) -> None:
    """Takes back what the requests of one call were charged, each once it is settled.

    Should this process end before, they stay charged: whoever asks for it gets a refund by hand.
    """
    left, deadline = list(requests), time.monotonic() + WITHIN_SECONDS
    while left:
        left = [each for each in left if not await _annulled(each)]
        if left and time.monotonic() > deadline:
            log.warning("not taken back", requests=[str(each) for each in left])
            return
        await asyncio.sleep(STEP_SECONDS if left else 0)


async def _annulled(request_id: UUID) -> bool:
    try:
        await run_db(quota_services.annul, request_id)
    except (NotFound, RedisError, OSError, DatabaseError, InterfaceError) as error:
        log.info("not taken back yet", request=str(request_id), error=str(error))
        return False
    return True
