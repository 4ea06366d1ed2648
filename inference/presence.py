"""Which processes hold callers' connections: a key in Redis for each, renewed while it has calls open.

A call whose process is gone has nobody left to answer, so the sweep cancels it (`gone`).
"""

import asyncio
import time
from collections.abc import Collection
from functools import cached_property
from uuid import UUID
from weakref import WeakSet

import structlog
from redis.exceptions import RedisError

from chatsite.ids import new_id
from chatsite.redis import async_client
from inference.redis import keys

log = structlog.get_logger(__name__)
BEAT_SECONDS = 1.0
LIFE_SECONDS = 4.0  # of the key after its last renewal
GONE_AFTER_SECONDS = 4.0  # without a key: Redis may have lost it, and its process then has time to enter it again


class Hold:
    """One call that is open. The process is present as long as somebody has one."""


class Presence:
    """Of this process, known by `id`."""

    def __init__(self) -> None:
        self._holds: WeakSet[Hold] = WeakSet()
        self._beating: asyncio.Task[None] | None = None

    @cached_property
    def id(self) -> UUID:
        """Made when it is asked for: a server may import first, and then fork."""
        return new_id()

    def hold(self) -> Hold:
        """Keep it until the call has ended."""
        hold = Hold()
        self._holds.add(hold)
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())
        return hold

    async def _beat(self) -> None:
        while self._holds:
            try:
                await async_client().set(keys.presence(self.id), 1, px=int(LIFE_SECONDS * 1000))
            except (RedisError, OSError) as error:
                log.warning("presence not told", error=str(error))  # nobody can look for it meanwhile
            await asyncio.sleep(BEAT_SECONDS)


async def gone(processes: Collection[UUID]) -> list[UUID]:
    """Those that have not been seen for so long that they are no more. Raises redis errors."""
    if not processes:
        return []
    known, client, now = list(processes), async_client(), time.time()
    seen = await client.mget([keys.presence(each) for each in known])
    found = []
    for process, here in zip(known, seen, strict=True):
        missing = keys.missing(process)
        if here is not None:
            await client.delete(missing)
        elif not await client.set(missing, now, nx=True, ex=60):
            since = await client.get(missing)
            if since is not None and now - float(since) > GONE_AFTER_SECONDS:
                found.append(process)
    return found
