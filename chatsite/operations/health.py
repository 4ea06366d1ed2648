"""`/healthz`: the process is alive. `/readyz`: it can serve, which needs the stores and one model that can answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, JsonResponse
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.redis import async_client
from inference.selectors import readiness

PART_SECONDS = 3.0
OK, DOWN, READY = "ok", "down", "ready"
log = structlog.stdlib.get_logger(__name__)


async def healthz(_request: HttpRequest) -> JsonResponse:
    """200 while the process answers at all; a supervisor restarts it when it does not."""
    return JsonResponse({"status": OK})


async def readyz(_request: HttpRequest) -> JsonResponse:
    """200 or 503 with `{"status": "ready"|"not_ready", "database", "redis", "models": {name: ready|loading|down}}`."""
    database, redis, models = await asyncio.gather(_part(_database, DOWN), _part(_redis, DOWN), _part(readiness, {}))
    ready = database == OK and redis == OK and READY in models.values()
    status = READY if ready else "not_ready"
    parts = {"status": status, "database": database, "redis": redis, "models": models}
    return JsonResponse(parts, status=200 if ready else 503, headers={} if ready else {"Retry-After": "2"})


async def _part(probe: Callable[[], Awaitable[Any]], otherwise: Any) -> Any:
    """What the probe says, or `otherwise` when it fails or takes too long: one dead part must not hide the others."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            return await probe()
    except (DatabaseError, RedisError, OSError, TimeoutError) as error:
        log.warning("a part is not ready", error=str(error))
        return otherwise


async def _database() -> str:
    await run_db(_select_one)
    return OK


def _select_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


async def _redis() -> str:
    await async_client().ping()  # type: ignore[misc]
    return OK
