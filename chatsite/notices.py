"""What all pages of a user must hear, whichever process they are on: that a conversation, or a session, has changed.

A capped stream per user holds ids and nothing else: of a conversation, of a reply that has ended, or one of the two
below. Who hears one reads the rows. One reader per process serves all its pages. A notice may be lost with Redis: pages
then catch up when they next read the rows by themselves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from redis.exceptions import RedisError

from chatsite.redis import SCHEMA, Call, Script, async_client, sync_client

STREAM_LENGTH: Final = 256
STREAM_SECONDS: Final = 3600
POLL_SECONDS: Final = 0.2  # one read over all users of the process
PENDING_LIMIT: Final = 64  # ids; beyond, a page is told that anything may have changed
ANYTHING: Final = UUID(int=0)
SESSIONS: Final = UUID(int=1)  # the user's sessions: pages look at once whether theirs still holds
ANNOUNCE: Final = Script.load(Path(__file__).parent / "announce.lua")

log = structlog.get_logger(__name__)


def prefix_of(user_id: UUID) -> str:
    return f"{SCHEMA}:{{u:{user_id}}}"


def stream_key(user_id: UUID) -> str:
    return f"{prefix_of(user_id)}:notices"


def announce_call(user_id: UUID, what: UUID) -> Call:
    """To be sent along with other calls."""
    return Call(ANNOUNCE, prefix_of(user_id), (str(what), STREAM_LENGTH, STREAM_SECONDS))


async def announce(user_id: UUID, what: UUID) -> None:
    """Call it after the commit. What cannot be announced is only seen later."""
    call = announce_call(user_id, what)
    try:
        await call.script(async_client(), call.prefix, *call.args)
    except (RedisError, OSError) as error:
        log.warning("notice not sent", user=str(user_id), error=str(error))


def announce_sync(user_id: UUID, what: UUID) -> None:
    """`announce`, for code in a thread."""
    call = announce_call(user_id, what)
    try:
        call.script.call_sync(sync_client(), call.prefix, *call.args)
    except (RedisError, OSError) as error:
        log.warning("notice not sent", user=str(user_id), error=str(error))


class Subscription:
    """A page's ear. Iterating gives ids, ANYTHING when notices may have been lost."""

    def __init__(self, user_id: UUID) -> None:
        self.user_id = user_id
        self._changed: dict[UUID, None] = {}  # in order, each once
        self._awake = asyncio.Event()

    def put(self, what: UUID) -> None:
        if len(self._changed) >= PENDING_LIMIT:
            self._changed = {ANYTHING: None, SESSIONS: None}
        else:
            self._changed[what] = None
        self._awake.set()

    async def __aiter__(self) -> AsyncIterator[UUID]:
        while True:
            await self._awake.wait()
            self._awake.clear()
            changed, self._changed = self._changed, {}
            for what in changed:
                yield what


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

    def _tell(self, user_id: UUID, what: UUID) -> None:
        for subscription in self._subscriptions.get(user_id, ()):
            subscription.put(what)

    def _lost_all(self) -> None:
        for user_id in self._places:
            self._places[user_id] = "0-0"
            self._tell(user_id, ANYTHING)
            self._tell(user_id, SESSIONS)


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
