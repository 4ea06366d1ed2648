"""Which processes hold callers' connections: a key in Redis for each, renewed while it has calls open.

A call whose process is gone has nobody left to answer, so the sweep cancels it (`gone`). The key is renewed by a thread
of its own: an event loop that is busy for seconds is late, but not gone. A process that is frozen is.
"""

import threading
import time
from collections.abc import Collection
from functools import cached_property
from uuid import UUID
from weakref import WeakSet

import structlog
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from chatsite.ids import new_id
from chatsite.redis import async_client
from inference.redis import keys

log = structlog.get_logger(__name__)
BEAT_SECONDS = 1.0
LIFE_SECONDS = 4.0  # of the key after its last renewal
ANSWER_SECONDS = 2.0  # that Redis may take
GONE_AFTER_SECONDS = 4.0  # without a key: Redis may have lost it, and its process then has time to enter it again


class Hold:
    """One call that is open. The process is present as long as somebody has one."""


class Presence:
    """Of this process, known by `id`."""

    def __init__(self) -> None:
        self._holds: WeakSet[Hold] = WeakSet()
        self._lock = threading.Lock()
        self._beating = False

    @cached_property
    def id(self) -> UUID:
        """Made when it is asked for: a server may import first, and then fork."""
        return new_id()

    def hold(self) -> Hold:
        """Keep it until the call has ended."""
        hold = Hold()
        with self._lock:
            self._holds.add(hold)
            if not self._beating:
                self._beating = True
                threading.Thread(
                    target=self._beat, args=(keys.presence(self.id),), name="presence", daemon=True
                ).start()
        return hold

    def _beat(self, key: str) -> None:
        wait = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
        with Redis.from_url(settings.REDIS_URL, **wait) as client:
            while self._held():
                try:
                    client.set(key, 1, px=int(LIFE_SECONDS * 1000))
                except (RedisError, OSError) as error:
                    log.warning("presence not told", error=str(error))  # nobody can look for it meanwhile
                time.sleep(BEAT_SECONDS)

    def _held(self) -> bool:
        """Whether to go on. Decided together with whoever would start another thread."""
        with self._lock:
            self._beating = bool(self._holds)
            return self._beating


async def here(processes: Collection[UUID]) -> list[UUID]:
    """Those that are seen at this moment. Raises redis errors."""
    known = list(processes)
    seen = await async_client().mget([keys.presence(each) for each in known]) if known else []
    return [process for process, found in zip(known, seen, strict=True) if found is not None]


async def gone(processes: Collection[UUID]) -> list[UUID]:
    """Those that have not been seen for so long that they are no more. Raises redis errors."""
    if not processes:
        return []
    known, client, now = list(processes), async_client(), time.time()
    seen = set(await here(known))
    found = []
    for process in known:
        missing = keys.missing(process)
        if process in seen:
            await client.delete(missing)
        elif not await client.set(missing, now, nx=True, ex=60):
            since = await client.get(missing)
            if since is not None and now - float(since) > GONE_AFTER_SECONDS:
                found.append(process)
    return found
