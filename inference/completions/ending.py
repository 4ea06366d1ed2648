"""What goes on by itself when a caller has gone: nobody may wait for it, as whoever calls may be ending as well."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError

from inference import services

WITHIN_SECONDS = 60.0  # that PostgreSQL may be away, or what is cancelled takes to settle
STEP_SECONDS = 0.5
going: set[asyncio.Task[Any]] = set()  # strong references: the loop keeps only weak ones
log = structlog.get_logger(__name__)


def go_on(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Starts it."""
    task = asyncio.create_task(work)
    going.add(task)
    task.add_done_callback(going.discard)
    return task


async def until_done(what: str, does: Callable[[UUID], Awaitable[bool]], requests: Iterable[UUID]) -> None:
    """Tries each again until it says that it is done, for a minute. `what` is not done then, for the log."""
    left, deadline = list(requests), time.monotonic() + WITHIN_SECONDS
    while left:
        left = [each for each in left if not await does(each)]
        if left and time.monotonic() > deadline:
            log.warning(f"not {what}", requests=[str(each) for each in left])
            return
        await asyncio.sleep(STEP_SECONDS if left else 0)


async def cancel(requests: Iterable[UUID]) -> None:
    """Cancels each, however often it takes: nobody else would while this process is there."""
    await until_done("cancelled", _cancelled, requests)


async def _cancelled(request_id: UUID) -> bool:
    try:
        await services.cancel(request_id)
    except (DatabaseError, InterfaceError) as error:
        log.info("not cancelled yet", request=str(request_id), error=str(error))
        return False
    return True
