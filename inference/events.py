"""The token log of a request: what its runner appends, and how readers follow it.

Entry ids are explicit, `<tokens emitted>-<n>`, so that Redis itself refuses a repeat. n is 0 for tokens, the attempt's
number where an attempt begins, 500 and more for text that has no token of its own (the rest of a character at the end),
and 1000 for the end. Positions count from the start of the owner's text, so a cursor works against the log and against
the row.
"""

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from chatsite.redis import Call, Script, async_client, send, streams_of
from chatsite.redis_line import Arg, Line
from inference.protocol import EndEvent, LogEvent, Result, RetryingEvent, StartedEvent, TokensEvent
from inference.redis import keys

_FOLDER = Path(__file__).parent / "redis"
OPEN_LOG, APPEND = (Script.load(_FOLDER / f"{name}.lua", _FOLDER / "log.lua") for name in ("open_log", "append"))
CLOSE_LOG = Script.load(_FOLDER / "close_log.lua")
START = "0-0"
APPENDED, REPEATED, FENCED, LOST = 1, 2, 0, -1  # answers of append
_TAIL, _END = 500, 1000

Entry = tuple[bytes, list[bytes]]  # as Redis gives it: the id, then names and values in turn
BLOCK_UP_TO = 16  # streams: beyond, short polls cost the server less than one blocking read over all
POLL_SECONDS = 0.02  # at least; with more streams up to MOST_POLL_SECONDS
POLL_PER_STREAM, MOST_POLL_SECONDS = 0.0006, 0.05
BLOCK_MS = 1000
QUIET_SECONDS = 1.0
QUEUE_LIMIT = 256  # entries a slow watcher may owe before it reads for itself again

log = structlog.get_logger(__name__)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as unsigned 32-bit integers (little-endian on every machine we run on)."""
    return array("I", ids).tobytes()


def unpack_ids(packed: bytes | memoryview) -> list[int]:
    return array("I", bytes(packed)).tolist()


# Writing


def open_call(request_id: UUID, claim: UUID, attempt: int, base_tokens: int, ttl_seconds: int) -> Call:
    """Makes `claim` the only writer. 0 when a later attempt has the log."""
    return Call(OPEN_LOG, keys.log(request_id), (str(claim), attempt, base_tokens, ttl_seconds))


def opening_call(opening: Call, appending: Call) -> Call:
    """Both in one step, of which a reader that waits hears once."""
    logprobs = appending.args[5:] or ("",)
    return Call(APPEND, appending.prefix, (*appending.args[:5], *logprobs, *opening.args[1:]))


def entry_id(tokens: int, textual: int = 0) -> str:
    """`tokens`: emitted once the entry is read. `textual`: 0, or the how-manieth entry without a token of its own."""
    return f"{tokens}-{min(_TAIL + textual, _END - 1) if textual else 0}"


def append_call(
    request_id: UUID,
    claim: UUID,
    entry: str,
    from_char: int,
    text: str,
    ids: Sequence[int],
    logprobs: bytes | None = None,
) -> Call:
    args = (str(claim), entry, from_char, text, pack_ids(ids))
    return Call(APPEND, keys.log(request_id), args if logprobs is None else (*args, logprobs))


def close_call(request_id: UUID, ttl_seconds: int, result: Result) -> Call:
    return Call(CLOSE_LOG, keys.log(request_id), (ttl_seconds, _encode_result(result)))


_encode_result = msgspec.json.Encoder().encode
_decode_result = msgspec.json.Decoder(Result).decode


# Reading once


@dataclass
class LogContents:
    """What a log holds: ids from the owner's token `from_token` on, text from its character `from_char` on."""

    from_token: int
    from_char: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""


async def read_log(client: Redis, request_id: UUID) -> LogContents | None:
    """Everything in the log, or None when it holds no token."""
    contents: LogContents | None = None
    texts: list[str] = []
    for entry, fields in await client.xrange(keys.out(request_id)):
        if b"t" not in fields:
            continue
        ids = unpack_ids(fields[b"i"])
        if contents is None:
            contents = LogContents(_tokens_of(entry) - len(ids), int(fields[b"c"]))
        elif ids and len(ids) > _tokens_of(entry) - contents.from_token - len(contents.token_ids):
            # Re-opened from a runner's memory: this entry begins before the end of the last; keep what is new.
            ids = ids[-(_tokens_of(entry) - contents.from_token - len(contents.token_ids)) :]
        seen = contents.from_char + sum(map(len, texts))
        contents.token_ids += ids
        texts.append(fields[b"t"].decode()[max(0, seen - int(fields[b"c"])) :])
    if contents is not None:
        contents.text = "".join(texts)
    return contents


async def has_log(request_id: UUID) -> bool:
    """Whether the log is still there, or not yet: a request that waits has none, but it has its prompt."""
    return bool(await async_client().exists(keys.out(request_id), keys.prompt(request_id)))


# Following


class Watcher:
    """One reader of one log. There are many that wait: a queue of asyncio's would be most of what each takes."""

    __slots__ = ("_events", "_waiting", "after", "ended", "key", "quiet")

    def __init__(self, request_id: UUID, after: str) -> None:
        self.key = keys.out(request_id).encode()
        self.after = after
        self.ended = False  # nothing more will come
        self.quiet = True  # nothing came since the last tick
        self._events: list[LogEvent | None] = []
        self._waiting: asyncio.Future[None] | None = None

    @property
    def lagging(self) -> bool:
        return len(self._events) >= QUEUE_LIMIT

    def take(self, entries: Sequence[Entry]) -> None:
        self.quiet = False
        for entry, fields in entries:
            self.after = entry.decode()
            event = _event(self.after, dict(zip(fields[::2], fields[1::2], strict=True)))
            self._events.append(event)
            self.ended = isinstance(event, EndEvent)
        self._wake()

    def tick(self) -> None:
        """Tells a reader that waits in vain that nothing comes."""
        if self.quiet and not self._events:
            self._events.append(None)
            self._wake()
        self.quiet = True

    async def next(self) -> list[LogEvent | None]:
        """What has come since the last call, in order, each once; waits until there is something."""
        while not self._events:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        events, self._events = self._events, []
        return events

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Hub:
    """The one reader of a process: it reads for all watchers together."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._line: Line | None = None
        self._number = 0  # of the line's connection
        self._blocked: int | None = None  # id of the connection that waits in a blocking read

    def add(self, watcher: Watcher) -> None:
        self.watchers.add(watcher)
        self._changed.set()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick(), name="token-log-ticks")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="token-log-hub")
        elif self._blocked is not None:
            connection, self._blocked = self._blocked, None
            self._unblocking = asyncio.create_task(self._unblock(connection))

    def remove(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)
        self._changed.set()

    async def _tick(self) -> None:
        """One timer for all watchers, and the reader is started again should it have ended by a mistake of ours."""
        while self.watchers:
            await asyncio.sleep(QUIET_SECONDS)
            for watcher in self.watchers:
                watcher.tick()
            if self.watchers and (self._task is None or self._task.done()):
                self._task = asyncio.create_task(self._run(), name="token-log-hub")

    async def _unblock(self, connection: int) -> None:
        with contextlib.suppress(RedisError):  # the read ends by itself within BLOCK_MS
            for _ in range(20):  # the read may not have reached the server yet
                [ended] = await send(self.client, [("CLIENT", "UNBLOCK", connection)])
                if ended == 1:
                    return
                await asyncio.sleep(0.001)

    async def _run(self) -> None:
        while self.watchers:
            try:
                await self._read(await self._own_line())
            except (RedisError, OSError) as error:  # readers fall back to the row; the log may come back
                log.warning("token log unreadable", error=str(error))
                await asyncio.sleep(0.5)
            finally:
                self._blocked = None

    async def _own_line(self) -> Line:
        """One that nobody else uses: a read on it waits, and can be told to wait no more."""
        if self._line is None or self._line.lost:
            self._line = await Line.open(self.client)
            [self._number] = await self._line.ask([("CLIENT", "ID")])
        return self._line

    async def _read(self, line: Line) -> None:
        """Until no watcher is left."""
        while self.watchers:
            self._changed.clear()
            wanted, by_key = self._wanted()
            if not wanted:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._changed.wait()
                continue
            blocking = len(wanted) <= BLOCK_UP_TO
            self._blocked = self._number if blocking and not self._changed.is_set() else None
            block = BLOCK_MS if self._blocked is not None else None
            [found] = await line.ask([_xread(wanted, block)])
            self._blocked = None
            if isinstance(found, ResponseError):
                raise found
            for key, entries in streams_of(found):
                for watcher in by_key[key]:
                    watcher.take(_after(entries, watcher.after))
            if not blocking:
                await asyncio.sleep(min(MOST_POLL_SECONDS, max(POLL_SECONDS, POLL_PER_STREAM * len(wanted))))

    def _wanted(self) -> tuple[dict[bytes, str], dict[bytes, list[Watcher]]]:
        """From where each log is read: behind what the slowest of its watchers has; and who watches it."""
        wanted: dict[bytes, str] = {}
        by_key: dict[bytes, list[Watcher]] = {}
        for watcher in self.watchers:
            if watcher.lagging or watcher.ended:
                continue
            by_key.setdefault(watcher.key, []).append(watcher)
            known = wanted.get(watcher.key)
            if known is None or _order(watcher.after) < _order(known):
                wanted[watcher.key] = watcher.after
        return wanted, by_key


_hubs: "WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]" = WeakKeyDictionary()


def _hub() -> Hub:
    loop = asyncio.get_running_loop()
    hub = _hubs.get(loop)
    if hub is None:
        hub = _hubs[loop] = Hub(async_client())
    return hub


async def tail(request_id: UUID, after: str = START) -> AsyncIterator[LogEvent | None]:
    """Follows a log from behind entry `after`; None when nothing came for a moment. Ends after the EndEvent."""
    hub, watcher = _hub(), Watcher(request_id, after)
    hub.add(watcher)
    try:
        while True:
            for event in await watcher.next():
                yield event
                if isinstance(event, EndEvent):
                    return
    finally:
        hub.remove(watcher)


def _event(entry: str, fields: dict[bytes, bytes]) -> LogEvent:
    if b"t" in fields:
        tokens = int(entry.partition("-")[0])
        text = fields[b"t"].decode()
        return TokensEvent(entry, tokens, int(fields[b"c"]), text, fields.get(b"l"), fields[b"i"])
    if b"a" in fields:
        attempt = int(fields[b"a"])
        return StartedEvent(entry) if attempt == 1 else RetryingEvent(entry, attempt)
    return EndEvent(entry, _decode_result(fields[b"r"]) if b"r" in fields else None)


def _order(entry: str) -> tuple[int, int]:
    tokens, _, n = entry.partition("-")
    return int(tokens), int(n)


def _tokens_of(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])


def _xread(wanted: dict[bytes, str], block_ms: int | None) -> list[Arg]:
    blocking: list[Arg] = [] if block_ms is None else ["BLOCK", block_ms]
    return ["XREAD", "COUNT", QUEUE_LIMIT, *blocking, "STREAMS", *wanted.keys(), *wanted.values()]


def _after(entries: list[Entry], after: str) -> list[Entry]:
    limit = _order(after)
    return [pair for pair in entries if _order(pair[0].decode()) > limit]
