"""Two ways out of a runner's memory: to the token logs as text comes, to PostgreSQL each second; one trip for all."""

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.redis import Call, async_client, run_pipeline
from inference import events, partials
from inference.events import pack_ids
from inference.partials import PartialRow
from inference.runner import topup
from inference.runner.stream import Interruption, Stream

if TYPE_CHECKING:
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
PAUSE_PER_STREAM = 0.003  # seconds: a lone stream is passed on at once, 34 and more every 0.1 s (COALESCE_SECONDS)
PAUSE_PER_STREAM_OF_MANY = 0.0002  # seconds: from 500 on the pause grows again, up to twice COALESCE_SECONDS


def pause(streams: int) -> float:
    """Seconds between two flushes. What an entry costs, here and in whoever reads it, is shared by more tokens then."""
    longest: float = settings.COALESCE_SECONDS
    return max(min(longest, PAUSE_PER_STREAM * streams), min(2 * longest, PAUSE_PER_STREAM_OF_MANY * streams))


class Flusher:
    """Appends what the streams got to their logs, gathering more into each entry the more streams there are."""

    def __init__(self, runner: "Runner") -> None:
        self.runner = runner
        self._dirty: dict[Stream, None] = {}
        self._wake = asyncio.Event()
        self._urgent: dict[Stream, None] = {}
        self._timer: asyncio.TimerHandle | None = None  # of the next flush of everything
        self.lock = asyncio.Lock()  # entries of one stream must go out in order

    def mark(self, stream: Stream, *, urgent: bool = False) -> None:
        """`urgent`: a first token is not made to wait."""
        self._dirty[stream] = None
        if urgent:
            self._urgent[stream] = None
        if urgent or self._timer is None:
            self._wake.set()

    async def run(self) -> None:
        due = 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            urgent, self._urgent = self._take(self._urgent), {}
            if urgent:
                await self.flush(urgent)  # alone: the others go on gathering
            rest = due - time.monotonic()
            if rest <= 0:
                due = time.monotonic() + pause(len(self.runner.streams))
                await self.flush(self._take(self._dirty))
            elif self._dirty and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(rest, self._on_time)

    def _take(self, marked: dict[Stream, None]) -> list[Stream]:
        """Those that PostgreSQL has given to us; the others stay marked until it has."""
        batch = [stream for stream in marked if stream.request is not None]
        for stream in batch:
            self._dirty.pop(stream, None)
        return batch

    def _on_time(self) -> None:
        self._timer = None
        self._wake.set()

    async def flush(self, batch: list[Stream]) -> None:
        """Appends everything that these streams have not logged yet. What fails is kept and tried again."""
        async with self.lock:
            ready = [stream for stream in batch if stream.request is not None and stream.output.unlogged]
            if not ready:
                return
            taken = [(stream, stream.output.unlogged_text, len(stream.output.ids)) for stream in ready]
            calls = [_append_call(stream) for stream in ready]
            for stream in ready:
                stream.output.unlogged_text = ""
            try:
                results = await run_pipeline(async_client(), calls)
            except (RedisError, OSError) as error:
                log.warning("token logs unreachable", streams=len(ready), error=str(error))
                results = [error] * len(ready)
            for (stream, text, tokens), result in zip(taken, results, strict=True):
                self._account(stream, text, tokens, result)
        if short := topup.running_short(ready):
            self.runner.top_up(short)

    def _account(self, stream: Stream, text: str, tokens: int, result: object) -> None:
        if result in (events.APPENDED, events.REPEATED):
            stream.opened, stream.output.logged_tokens = True, tokens
            return
        stream.output.unlogged_text = text + stream.output.unlogged_text
        if result == events.FENCED:
            stream.interrupt(Interruption.FENCED)
        elif result == events.LOST:
            self.runner.reopen(stream)
        else:
            self.runner.retry_soon(stream)


def _append_call(stream: Stream) -> Call:
    output = stream.output
    from_char = output.base_chars + output.chars - len(output.unlogged_text)
    new_ids = output.ids[output.logged_tokens :]
    if not new_ids:
        output.textual += 1
    entry = events.entry_id(output.emitted, 0 if new_ids else output.textual)
    logprobs = _encode(output.logprobs[output.logged_tokens :]) if output.wants_logprobs else None
    call = events.append_call(stream.id, stream.claim, entry, from_char, output.unlogged_text, new_ids, logprobs)
    return call if stream.opened else events.opening_call(stream.opening, call)


class Persister:
    """Saves what the streams got since the last time in one statement; writing stays linear in the text."""

    def __init__(self, runner: "Runner") -> None:
        self.runner = runner
        self._lock = asyncio.Lock()

    async def finish(self, stream: Stream) -> bool:
        """No more rows of this stream, and none on its way: settling deletes them. True when there may be some."""
        stream.settling = True
        async with self._lock:
            return stream.attempt > 1 or stream.output.saved_tokens > 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(settings.PERSIST_SECONDS)
            await self.save(list(self.runner.streams.values()))
            await self.runner.note_released()

    async def save(self, streams: list[Stream]) -> None:
        """What fails stays unsaved, and goes with the next call."""
        async with self._lock:
            ready = [stream for stream in streams if stream.has_unsaved]
            taken = [(stream, stream.output.unsaved_text, len(stream.output.ids)) for stream in ready]
            rows = [_partial_row(stream) for stream in ready]
            for stream in ready:
                stream.output.unsaved_text = ""
            try:
                refused = await run_db(partials.save, rows) if rows else set()
            except (DatabaseError, InterfaceError) as error:
                log.warning("text not saved", streams=len(rows), error=str(error))
                refused = {stream.id for stream in ready}
            for stream, text, tokens in taken:
                if stream.id in refused:
                    stream.output.unsaved_text = text + stream.output.unsaved_text
                else:
                    stream.output.saved_tokens = tokens


def _partial_row(stream: Stream) -> PartialRow:
    output = stream.output
    return PartialRow(
        stream.id,
        stream.claim,
        stream.attempt,
        output.base_tokens + output.saved_tokens,
        output.emitted,
        output.base_chars + output.chars - len(output.unsaved_text),
        pack_ids(output.ids[output.saved_tokens :]),
        output.unsaved_text,
    )
