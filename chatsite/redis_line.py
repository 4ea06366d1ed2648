"""A connection to Redis that all tasks of an event loop share: what they ask is written at once, and answered in order.

The library lends a connection to each command, looks whether it is still good, and times the write and the read by
themselves: four times the work, and more turns of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Self, cast

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import DataError
from redis.exceptions import TimeoutError as Late

Arg = str | bytes | int | float
_NOTHING: Any = object()  # what the reader says when it has no whole reply


class _Question:
    """Commands that were written together, and their replies so far."""

    __slots__ = ("answer", "asked_at", "left", "replies")

    def __init__(self, answer: "asyncio.Future[list[Any]]", commands: int, asked_at: float) -> None:
        self.answer, self.left, self.asked_at = answer, commands, asked_at
        self.replies: list[Any] = []


class Line(asyncio.Protocol):
    """One connection. It is `lost` once and for all: with Redis, by `close`, or when a reply takes too long.

    Whoever waits may be cancelled at any time: the reply is read, and dropped.
    """

    def __init__(self, connection: AbstractConnection, transport: asyncio.Transport) -> None:
        """`connection`: has said who we are, and is known as good; its `transport` is ours from now on."""
        self._lost = False
        self._connection, self._transport = connection, transport  # the first would close the second with its own end
        self._patience: float | None = connection.socket_timeout
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=DefaultParser.parse_error, notEnoughData=_NOTHING)
        self._open: deque[_Question] = deque()
        self._timer: asyncio.TimerHandle | None = None
        transport.set_protocol(self)

    @classmethod
    async def open(cls, client: aioredis.Redis) -> Self:
        """To where `client` connects, as it does. Raises RedisError."""
        connection: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        await connection.connect()  # type: ignore[no-untyped-call]
        assert connection._writer is not None  # the library has no other way to its transport
        return cls(connection, cast(asyncio.Transport, connection._writer.transport))

    @property
    def lost(self) -> bool:
        """The transport knows from its first failure, and says so (`connection_lost`) when the event loop turns."""
        return self._lost or self._transport.is_closing()

    async def ask(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Each command's reply as it came (bytes, numbers, lists), or its ResponseError. Raises RedisError."""
        if self.lost:
            raise LostConnection("The connection to Redis is closed.")
        try:
            packed = b"".join([hiredis.pack_command(tuple(each)) for each in commands])  # type: ignore[arg-type]
        except TypeError as error:
            raise DataError(str(error)) from error
        question = _Question(self._loop.create_future(), len(commands), self._loop.time())
        self._open.append(question)
        self._transport.write(packed)
        if self._timer is None and self._patience is not None:
            self._timer = self._loop.call_later(self._patience, self._look_at_the_time)
        replies = await question.answer
        for reply in replies:
            if isinstance(reply, LostConnection):  # it loads its data, say
                raise reply
        return replies

    async def close(self) -> None:
        """Idempotent. Whoever still waits gets an error."""
        self._lose(LostConnection("The connection to Redis was closed."))
        await self._connection.disconnect(nowait=True)

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                if not isinstance(reply, hiredis.PushNotification):
                    self._take(reply)
        except (hiredis.HiredisError, IndexError) as error:  # no reply at all, or one that nobody has asked for
            self._lose(LostConnection(f"Redis cannot be understood: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(LostConnection(f"The connection to Redis was lost: {error or 'closed by the server'}"))

    def _take(self, reply: Any) -> None:
        question = self._open[0]
        question.replies.append(reply)
        question.left -= 1
        if not question.left:
            self._open.popleft()
            if not question.answer.done():
                question.answer.set_result(question.replies)

    def _look_at_the_time(self) -> None:
        """One timer for all: it is set for the oldest of those that wait when it fires."""
        self._timer = None
        if not self._open or self._patience is None:
            return
        left = self._open[0].asked_at + self._patience - self._loop.time()
        if left <= 0:
            self._lose(Late("Redis does not answer."))
        else:
            self._timer = self._loop.call_later(left, self._look_at_the_time)

    def _lose(self, error: Exception) -> None:
        if self._lost:
            return
        self._lost = True
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        for question in self._open:
            if not question.answer.done():
                question.answer.set_exception(error)
        self._open.clear()


class SharedLine:
    """A client's line, made when it is first needed, and again once it was lost."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._opening: asyncio.Task[Line] | None = None

    async def ask(self, client: aioredis.Redis, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """As `Line.ask`."""
        line = self._line
        if line is None or line.lost:
            line = await self._opened(client)
        return await line.ask(commands)

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._line is not None:
            await self._line.close()

    async def _opened(self, client: aioredis.Redis) -> Line:
        """One attempt for all that wait: where it fails, it has failed for each of them."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(client))
            self._opening.add_done_callback(self._tried)
        return await asyncio.shield(self._opening)

    async def _open(self, client: aioredis.Redis) -> Line:
        if self._line is not None:
            await self._line.close()
        self._line = await Line.open(client)
        return self._line

    def _tried(self, attempt: "asyncio.Task[Line]") -> None:
        self._opening = None
        if not attempt.cancelled():
            attempt.exception()  # retrieved: whoever waits has it, if anybody still does
