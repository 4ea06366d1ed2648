"""An answer in one piece that fails costs nothing, also where some of its choices were complete by then."""

from collections.abc import Iterable
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.errors import NotFound
from inference.completions.ending import until_done
from quotas import services as quota_services

log = structlog.get_logger(__name__)


async def annul(requests: Iterable[UUID]) -> None:
    """Takes back what the requests of one call were charged, each once it is settled.

    Should this process end before, they stay charged: whoever asks for it gets a refund by hand.
    """
    await until_done("taken back", _annulled, requests)


async def _annulled(request_id: UUID) -> bool:
    try:
        await run_db(quota_services.annul, request_id)
    except (NotFound, RedisError, OSError, DatabaseError, InterfaceError) as error:
        log.info("not taken back yet", request=str(request_id), error=str(error))
        return False
    return True
