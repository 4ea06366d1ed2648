"""What all pages of a user must hear, whichever process they are on: that a conversation has changed.

A capped stream per user holds conversation ids and nothing else; who hears one reads the rows. One reader per process
serves all its pages. A notice may be lost with Redis: pages then catch up when they next read the rows by themselves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from chatsite.redis import SCHEMA, async_client

STREAM_LENGTH: Final = 256
STREAM_SECONDS: Final = 3600
POLL_SECONDS: Final = 0.2  # one read over all users of the process
PENDING_LIMIT: Final = 64  # conversations; beyond, a page is told that anything may have changed
ANYTHING: Final = UUID(int=0)

log = structlog.get_logger(__name__)


def stream_key(user_id: UUID) -> str:
    return f"{SCHEMA}:{{u:{user_id}}}:notices"


async def announce(user_id: UUID, conversation_id: UUID) -> None:
    """Call it after the commit. What cannot be announced is only seen later."""
    key = stream_key(user_id)
    try:
        async with async_client().pipeline(transaction=False) as pipe:
            pipe.xadd(key, {"c": str(conversation_id)}, maxlen=STREAM_LENGTH, approximate=True)
            pipe.expire(key, STREAM_SECONDS)
            await pipe.execute()
    except (RedisError, OSError) as error:
        log.warning("notice not sent", user=str(user_id), error=str(error))


class Subscription:
    """A page's ear. Iterating gives conversation ids, ANYTHING when notices may have been lost."""

    def __init__(self, user_id: UUID) -> None:
        self.user_id = user_id
        self._changed: dict[UUID, None] = {}  # in order, each once
        self._awake = asyncio.Event()

    def put(self, conversation_id: UUID) -> None:
        if len(self._changed) >= PENDING_LIMIT:
            self._changed = {ANYTHING: None}
        else:
            self._changed[conversation_id] = None
        self._awake.set()

    async def __aiter__(self) -> AsyncIterator[UUID]:
        while True:
            await self._awake.wait()
            self._awake.clear()
            changed, self._changed = self._changed, {}
            for conversation_id in changed:
                yield conversation_id


class _Reader:
    """Reads for all subscriptions of one event loop."""

    def __init__(self) -> None:
        self._places: dict[UUID, str] = {}  # user -> the last entry that was read
        self._subscriptions: dict[UUID, set[Subscription]] = {}
        self._task: asyncio.Task[None] | None = None

    async def add(self, user_id: UUID) -> Subscription:
        subscription = Subscription(user_id)
        place = self._places.get(user_id) or await _last_entry(user_id)
        self._places.setdefault(user_id, place)
        self._subscriptions.setdefault(user_id, set()).add(subscription)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="notices")
        return subscription

    def remove(self, subscription: Subscription) -> None:
        others = self._subscriptions.get(subscription.user_id, set())
        others.discard(subscription)
        if not others:
            self._subscriptions.pop(subscription.user_id, None)
            self._places.pop(subscription.user_id, None)

    async def _run(self) -> None:
        failing = False
        while self._places:
            try:
                await self._read()
            except (RedisError, OSError) as error:
                log.warning("notices unreadable", error=str(error))
                failing = True
            else:
                if failing:  # the streams may be gone: read from their start, and look at everything once
                    failing = False
                    self._lost_all()
            await asyncio.sleep(POLL_SECONDS)

    async def _read(self) -> None:
        users = {stream_key(user_id).encode(): user_id for user_id in self._places}
        found: Any = await async_client().xread({key: self._places[user_id] for key, user_id in users.items()})
        for key, entries in found.items() if isinstance(found, dict) else found:
            user_id = users[key]
            if user_id in self._places:
                self._places[user_id] = entries[-1][0].decode()
            for _, fields in entries:
                self._tell(user_id, UUID(fields[b"c"].decode()))

    def _tell(self, user_id: UUID, conversation_id: UUID) -> None:
        for subscription in self._subscriptions.get(user_id, ()):
            subscription.put(conversation_id)

    def _lost_all(self) -> None:
        for user_id in self._places:
            self._places[user_id] = "0-0"
            self._tell(user_id, ANYTHING)


async def _last_entry(user_id: UUID) -> str:
    try:
        last = await async_client().xrevrange(stream_key(user_id), count=1)
    except (RedisError, OSError):
        return "0-0"  # the worst of it: a notice that is old is heard again
    return last[0][0].decode() if last else "0-0"


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Reader]" = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def subscribed(user_id: UUID) -> AsyncIterator[Subscription]:
    """Hears everything that is announced from when the block is entered."""
    reader = _readers.setdefault(asyncio.get_running_loop(), _Reader())
    subscription = await reader.add(user_id)
    try:
        yield subscription
    finally:
        reader.remove(subscription)
