"""The one way to read a reply: what is stored joined with what is live, exactly once at character precision.

Every reader (SSE, WebSocket, a call that waits for the whole) goes through `follow`. Stored text is read first, then
the log from a place that cannot leave a gap: an entry says where its text begins, so what both have is cut, and what
the log has no more (Redis was emptied) is fetched from the row.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final, ParamSpec, TypeVar, cast
from uuid import UUID

import structlog
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError
from redis.exceptions import RedisError

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import Unavailable
from conversations import selectors
from conversations.selectors import Reply
from inference import events
from inference import selectors as inference_selectors
from inference.protocol import Cursor, EndEvent, LogEvent, QueuePlace, RetryingEvent, TokensEvent, Usage

SILENT_SECONDS: Final = 5  # without a word from the log for so long, the row is read
GAP_POLL_SECONDS: Final = 0.25  # how often the row is read for text that the log no longer has
AWAY_SECONDS: Final = 1.0  # between two tries to read from a database that is away
AWAY: Final = (DatabaseError, InterfaceError, Unavailable)  # the bare DatabaseError too: a connection that broke
_WRONG: Final = (DataError, IntegrityError, NotSupportedError, ProgrammingError)  # no wait mends these

P = ParamSpec("P")
R = TypeVar("R")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Queued:
    """The reply waits. Has no cursor: nothing is repeated by seeing it twice."""

    message_id: UUID
    position: int  # 1 is next
    eta: float | None  # seconds
    loading: bool  # the model is not up yet
    smaller: str = ""  # title of a model that would answer now
    late: bool = False  # it was to be over by now


@dataclass(frozen=True, slots=True)
class Started:
    message_id: UUID
    user_message_id: UUID | None
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Retrying:
    attempt: int
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Done:
    message_id: UUID
    status: str  # complete | stopped
    finish_reason: str
    usage: Usage
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Failed:
    message_id: UUID
    code: str
    message: str
    retryable: bool
    cursor: Cursor


ReplyEvent = Queued | Started | Token | Retrying | Done | Failed


def end_cursor(reply: Reply) -> Cursor:
    """The cursor of a finished reply's last event. The end counts as one more token, so that a reader who has the last
    token, but was not told of the end, is told."""
    return Cursor(reply.request_id, reply.tokens + 1, len(reply.text))


def at_end(reply: Reply, cursor: Cursor | None) -> bool:
    """Whether nothing at all comes after `cursor`."""
    return reply.terminal and cursor == end_cursor(reply)


async def open_reply(principal: Principal, message_id: UUID, cursor: Cursor | None = None) -> Reply:
    """The reply as it is stored. Raises NotFound; InvalidInput for a message that is no reply, or a foreign cursor."""
    return await run_db(selectors.get_reply, principal, message_id, cursor)


async def follow(
    principal: Principal, message_id: UUID, cursor: Cursor | None = None
) -> AsyncGenerator[ReplyEvent, None]:
    """Events of a reply after `cursor`, from the start without one; ends after Done or Failed.

    Raises what `open_reply` raises, before the first event; after it, a database that is away is waited for. Leave it
    early through `contextlib.aclosing`.
    """
    reply = await open_reply(principal, message_id, cursor)
    async with aclosing(follow_from(reply, cursor)) as found:
        async for event in found:
            yield event


async def follow_from(reply: Reply, cursor: Cursor | None = None) -> AsyncGenerator[ReplyEvent, None]:
    """As `follow`, for a reply that was read just now."""
    if at_end(reply, cursor):
        return
    reader = Reader(reply, cursor)
    for event in reader.stored(reply):
        yield event
    while not reader.ended:
        async with aclosing(_log(reader)) as entries:
            async for entry in entries:
                while reader.lacks(entry):
                    for event in reader.stored(await _reread(reader)):
                        yield event
                    if reader.lacks(entry):
                        await asyncio.sleep(GAP_POLL_SECONDS)
                for event in reader.logged(entry) if isinstance(entry, LogEvent) else reader.queued(entry):
                    yield event
                if reader.ended:
                    return
        for event in reader.stored(await _reread(reader)):
            yield event
        if not reader.ended:
            await asyncio.sleep(GAP_POLL_SECONDS)


async def _log(reader: "Reader") -> AsyncGenerator[LogEvent | QueuePlace, None]:
    """The log, and once a second the place in the queue, until the end or a silence: then the row must be read."""
    silent = 0
    async with aclosing(
        cast(AsyncGenerator[LogEvent | None, None], events.tail(reader.request_id, reader.entry))
    ) as entries:
        async for entry in entries:
            if entry is not None:
                silent = 0
                yield entry
                continue
            silent += 1
            if silent >= SILENT_SECONDS:
                return
            if not reader.started and (place := await _place(reader.request_id)):
                yield place


async def _place(request_id: UUID) -> QueuePlace | None:
    try:
        return await inference_selectors.queue_place(request_id)
    except (RedisError, OSError, *AWAY):
        return None  # the reply goes on without a store, and so does its reader: the row will tell


async def _reread(reader: "Reader") -> Reply | None:
    return await read_patiently(selectors.reread_reply, reader.reply)


def is_away(error: Exception) -> bool:
    """Whether the database may answer later, as it does after a restart."""
    return isinstance(error, AWAY) and not isinstance(error, _WRONG)


async def read_patiently(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`run_db` for a read on behalf of a reply that goes on: tried again while the database is away."""
    while True:
        try:
            return await run_db(function, *args, **kwargs)
        except AWAY as error:
            if not is_away(error):
                raise
            log.warning("the database is away: the reader waits", error=str(error))
        await asyncio.sleep(AWAY_SECONDS)


class Reader:
    """How far one reader has come. Pure: given what is stored or logged, it returns the events that are new to it."""

    def __init__(self, reply: Reply, cursor: Cursor | None) -> None:
        self.reply = reply
        self.position = 0  # characters of the text that the reader has
        self.tokens = 0
        self.started = False
        self.ended = False
        self.entry = "0-0"  # where the log is read on
        self._place: QueuePlace | None = None  # as it was shown last
        if cursor is not None:
            self.position, self.tokens = cursor.characters, cursor.tokens
            self.started = cursor.request_id == reply.request_id
            if not self.started and not reply.terminal:  # of the request that this one continues
                self.position = min(self.position, reply.base_chars)

    @property
    def request_id(self) -> UUID:
        return self.reply.request_id

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.request_id, self.tokens, self.position)

    def lacks(self, entry: LogEvent | QueuePlace) -> bool:
        """Whether text before that of `entry` is missing: Redis lost it, or the reader is not yet at what is stored."""
        return isinstance(entry, TokensEvent) and entry.from_char > self.position and not self.ended

    def queued(self, place: QueuePlace) -> list[ReplyEvent]:
        """An event when the place has changed, or the time that was shown has passed."""
        if self.started:
            return []
        shown = place.after(self._place, monotonic())
        if shown == self._place:
            return []
        self._place = shown
        return [Queued(self.reply.message_id, shown.position, shown.eta, shown.loading, shown.smaller, shown.late)]

    def stored(self, reply: Reply | None) -> list[ReplyEvent]:
        """What is new in the row; None when the row is gone."""
        if reply is None:
            self.ended = True
            message_id = self.reply.message_id
            return [Failed(message_id, "not_found", "The conversation was deleted.", False, self.cursor)]
        if reply.request_id != self.request_id:  # it ended, and was continued, before this reader saw the end
            self.started, self.entry, self._place = False, "0-0", None
        self.reply = reply
        if reply.terminal:
            return [*(self._text(0, reply.text, reply.tokens) if reply.text else []), self._end(reply)]
        self.entry = f"{reply.tokens}-0"
        # While a continued reply waits, its earlier text waits too: Started comes first.
        return [] if reply.status == "pending" else self._text(0, reply.text, reply.tokens)

    def logged(self, entry: LogEvent) -> list[ReplyEvent]:
        """What is new in an entry of the log, whose text must not begin beyond `position`."""
        if isinstance(entry, TokensEvent):
            return self._text(entry.from_char, entry.text, entry.tokens)
        if isinstance(entry, RetryingEvent):
            return [*self._start(), Retrying(entry.attempt, self.cursor)]
        if isinstance(entry, EndEvent):
            return []  # the row says how
        return self._start()

    def _start(self) -> list[ReplyEvent]:
        if self.started:
            return []
        self.started = True
        return [Started(self.reply.message_id, self.reply.user_message_id, self.cursor)]

    def _text(self, from_char: int, text: str, tokens: int) -> list[ReplyEvent]:
        events = self._start()
        new = text[max(0, self.position - from_char) :]
        if new:
            self.position += len(new)
            self.tokens = tokens
            events.append(Token(new, self.cursor))
        return events

    def _end(self, reply: Reply) -> ReplyEvent:
        self.ended = True
        cursor = end_cursor(reply)
        if reply.status == "failed":
            return Failed(reply.message_id, reply.error_code, reply.error_message, retryable(reply.error_code), cursor)
        return Done(reply.message_id, reply.status, reply.finish_reason, reply.usage, cursor)


# The caller's own doing: the same again would fail the same way.
_LASTING = frozenset(
    {"context_too_long", "control_token", "invalid_input", "engine_rejected", "budget_exhausted", "not_found"}
)


def retryable(code: str) -> bool:
    """Whether Regenerate or Continue may help."""
    return code not in _LASTING
