"""Two ways out of a runner's memory: to the token logs as text comes, to PostgreSQL each second; one trip for all."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.database import run_db
from chatsite.redis import Call, async_client, run_pipeline
from inference import events, partials
from inference.events import pack_ids
from inference.partials import PartialRow
from inference.runner.stream import Interruption, Stream

if TYPE_CHECKING:
    from inference.runner.process import Runner

log = structlog.get_logger(__name__)
PACED_FROM = 8  # streams
PAUSE_PER_STREAM = 0.0015  # seconds: a lone stream is passed on at once, 64 of them every 0.1 s


class Flusher:
    """Appends what the streams got to their logs, gathering more into each entry the more streams there are."""

    def __init__(self, runner: "Runner") -> None:
        self.runner = runner
        self._dirty: dict[Stream, None] = {}
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._lock = asyncio.Lock()  # entries of one stream must go out in order
        self._turn = asyncio.Event()

    def mark(self, stream: Stream, *, urgent: bool = False) -> None:
        """`urgent`: a first token is not made to wait."""
        self._dirty[stream] = None
        self._wake.set()
        if urgent:
            self._urgent.set()

    async def turn(self, stream: Stream) -> None:
        """While many streams run, waits until what this one brought is flushed: what the engine sends meanwhile is then
        read in one piece, which costs a fraction of reading each token."""
        if stream in self._dirty and len(self.runner.streams) >= PACED_FROM:
            await self._turn.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._urgent.clear()
            started = time.monotonic()
            batch = [stream for stream in self._dirty if stream.request is not None]
            for stream in batch:
                del self._dirty[stream]
            try:
                await self.flush(batch)
            finally:
                self._turn.set()
                self._turn = asyncio.Event()
            pause = min(settings.COALESCE_SECONDS, PAUSE_PER_STREAM * len(self.runner.streams))
            rest = pause - (time.monotonic() - started)
            if rest > 0:
                with contextlib.suppress(TimeoutError):  # nothing urgent came
                    async with asyncio.timeout(rest):
                        await self._urgent.wait()

    async def flush(self, batch: list[Stream]) -> None:
        """Appends everything that these streams have not logged yet. What fails is kept and tried again."""
        async with self._lock:
            ready = [s for s in batch if s.request is not None and (s.unlogged_text or s.logged_tokens < len(s.ids))]
            if not ready:
                return
            taken = [(stream, stream.unlogged_text, len(stream.ids)) for stream in ready]
            calls = [_append_call(stream) for stream in ready]
            for stream in ready:
                stream.unlogged_text = ""
            try:
                results = await run_pipeline(async_client(), calls)
            except (RedisError, OSError) as error:
                log.warning("token logs unreachable", streams=len(ready), error=str(error))
                results = [error] * len(ready)
            for (stream, text, tokens), result in zip(taken, results, strict=True):
                self._account(stream, text, tokens, result)

    def _account(self, stream: Stream, text: str, tokens: int, result: object) -> None:
        if result in (events.APPENDED, events.REPEATED):
            stream.logged_tokens = tokens
            return
        stream.unlogged_text = text + stream.unlogged_text
        if result == events.FENCED:
            stream.interrupt(Interruption.FENCED)
        elif result == events.LOST:
            self.runner.reopen(stream)
        else:
            self.runner.retry_soon(stream)


def _append_call(stream: Stream) -> Call:
    from_char = stream.base_chars + stream.chars - len(stream.unlogged_text)
    new_ids = stream.ids[stream.logged_tokens :]
    if not new_ids:
        stream.textual += 1
    entry = events.entry_id(stream.emitted, 0 if new_ids else stream.textual)
    return events.append_call(stream.id, stream.claim, entry, from_char, stream.unlogged_text, new_ids)


class Persister:
    """Saves what the streams got since the last time in one statement; writing stays linear in the text."""

    def __init__(self, runner: "Runner") -> None:
        self.runner = runner
        self._lock = asyncio.Lock()

    async def finish(self, stream: Stream) -> bool:
        """No more rows of this stream, and none on its way: settling deletes them. True when there may be some."""
        stream.settling = True
        async with self._lock:
            return stream.attempt > 1 or stream.saved_tokens > 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(settings.PERSIST_SECONDS)
            await self.save(list(self.runner.streams.values()))
            await self.runner.note_released()

    async def save(self, streams: list[Stream]) -> None:
        """What fails stays unsaved, and goes with the next call."""
        async with self._lock:
            ready = [stream for stream in streams if stream.has_unsaved]
            taken = [(stream, stream.unsaved_text, len(stream.ids)) for stream in ready]
            rows = [_partial_row(stream) for stream in ready]
            for stream in ready:
                stream.unsaved_text = ""
            try:
                refused = await run_db(partials.save, rows) if rows else set()
            except (DatabaseError, InterfaceError) as error:
                log.warning("text not saved", streams=len(rows), error=str(error))
                refused = {stream.id for stream in ready}
            for stream, text, tokens in taken:
                if stream.id in refused:
                    stream.unsaved_text = text + stream.unsaved_text
                else:
                    stream.saved_tokens = tokens


def _partial_row(stream: Stream) -> PartialRow:
    return PartialRow(
        stream.id,
        stream.claim,
        stream.attempt,
        stream.base_tokens + stream.saved_tokens,
        stream.emitted,
        stream.base_chars + stream.chars - len(stream.unsaved_text),
        pack_ids(stream.ids[stream.saved_tokens :]),
        stream.unsaved_text,
    )
