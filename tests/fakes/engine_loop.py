"""The fake engine's insides: what a vLLM scheduler does, with made up tokens."""

import asyncio
import zlib
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.engine_tokens import Continuation, FakeModel, Script
from tests.fakes.engine_wire import CompletionEvents, Counts, WholeCompletion, error_event
from tests.fakes.http_server import Connection, chunk

CHATTER_SECONDS = 0.05
# What a stream may do once it has sent `Faults.after` tokens.
STREAM_FAULTS = {
    "stall": "it sends nothing more",
    "chatter": "it keeps on sending comments, which is all",
    "reset": "its connection is cut",
    "die": "the whole engine is gone, as by kill -9",
    "error": "an error event, as when vLLM's core has died",
    "end": "it ends without a finish reason",
    "garbage": "an event that is no JSON",
    "half": "half an event, then the end",
    "count": "usage counts one token too many",
}


@dataclass
class Options:
    """How it behaves; may be changed while it runs."""

    model: str = "smollm2-135m"  # the name it serves
    model_path: str = ""  # whose tokens it uses; made up ones without
    tokens_per_second: float = 0.0  # of each stream; 0: as fast as it can
    first_token_seconds: float = 0.0
    prefill_tokens_per_second: float = 0.0  # of what its prefix cache lacks, one prompt after the other; 0: at once
    tokens_per_chunk: int = 1
    max_num_seqs: int = 256  # the others wait
    max_model_len: int = 4096
    emoji: float = 0.0  # share of places where an emoji of several tokens begins
    stop: float = 0.0  # chance of an end at each token; 0: every reply has `max_tokens`
    script: str = ""  # a text that every reply is, at most `max_tokens` words of it; only without `model_path`
    block_size: int = 128
    kv_blocks: int = 8192  # more is never held: the others wait, and the youngest gives way when replies grow


@dataclass
class Faults:
    """What goes wrong; may be changed while it runs."""

    stream: str = ""  # one of STREAM_FAULTS
    after: int = 0  # tokens of a stream
    times: int = 0  # so often, then no more; 0: always
    status: int = 0  # answers /v1/completions with this
    unhealthy: bool = False
    silent: Sequence[str] = ()  # paths that are never answered, such as "/health"
    figures: Mapping[str, str] = field(default_factory=dict)  # what /metrics and its labels say instead, by name

    def strike(self) -> str:
        """The stream fault that happens now."""
        kind = self.stream
        if self.times:
            self.times -= 1
            if not self.times:
                self.stream = ""
        return kind


@dataclass(eq=False)
class Call:
    """A request for tokens: what was asked, and what became of it."""

    name: str
    body: dict[str, Any]  # without the prompt
    prompt_ids: list[int]
    cached_tokens: int
    token_ids: list[int] = field(default_factory=list)
    outcome: str = "waiting"  # running, finished, aborted (by the client), or a fault's name


@dataclass(eq=False, slots=True)
class Run:
    """A sequence of the engine."""

    call: Call
    connection: Connection
    events: CompletionEvents
    continuation: Continuation | Script
    max_tokens: int
    min_tokens: int
    timer: asyncio.Handle | None = None
    begun: bool = False  # its first event is out
    silent: bool = False  # it sends nothing more

    @property
    def tokens(self) -> int:
        return len(self.call.prompt_ids) + len(self.call.token_ids)

    def counts(self, extra: int = 0) -> Counts:
        return Counts(len(self.call.prompt_ids), len(self.call.token_ids) + extra, self.call.cached_tokens)


class PrefixCache:
    """Which blocks of prompts the engine has computed, by a chained hash; each salt has its own."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._blocks: dict[int, None] = {}  # oldest first

    def clear(self) -> None:
        self._blocks.clear()

    def find(self, ids: list[int], salt: str) -> int:
        """How many tokens of a prompt are there."""
        found = 0
        for total in self._sums(ids[:-1], salt):  # the last token is always computed
            if total not in self._blocks:
                break
            found += self._options.block_size
        return found

    def add(self, ids: list[int], salt: str) -> None:
        for total in self._sums(ids, salt):
            self._blocks.pop(total, None)
            self._blocks[total] = None
        while len(self._blocks) > self._options.kv_blocks:
            del self._blocks[next(iter(self._blocks))]

    def _sums(self, ids: list[int], salt: str) -> list[int]:
        size, total = 4 * self._options.block_size, zlib.crc32(salt.encode())
        packed, sums = array("I", ids).tobytes(), []
        for start in range(0, len(packed) - size + 1, size):
            total = zlib.crc32(packed[start : start + size], total)
            sums.append(total)
        return sums


class EngineLoop:
    """Slots, a waiting queue, prefill by itself, then one step for all sequences that decode; and the faults."""

    def __init__(self, options: Options, model: FakeModel) -> None:
        self.options = options
        self.model = model
        self.faults = Faults()
        self.cache = PrefixCache(options)
        self.aborted = self.finished = self.tokens = self.chunks = self.preemptions = 0
        self._prefill_ends = 0.0  # of all that are admitted
        self._waiting: deque[Run] = deque()
        self._prefilling: set[Run] = set()
        self._decoding: dict[Run, None] = {}  # in the order of their beginning
        self._step_handle: asyncio.Handle | None = None
        self._next_step = 0.0

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """0..1."""
        return min(self._blocks_used / self.options.kv_blocks, 1.0)

    @property
    def _blocks_used(self) -> int:
        return sum(map(self._blocks, [*self._prefilling, *self._decoding]))

    def _blocks(self, run: Run) -> int:
        return run.tokens // self.options.block_size + 1

    def submit(self, run: Run) -> None:
        """Take a sequence in."""
        run.connection.on_lost = lambda: self._abort(run)
        run.connection.on_writable = self.wake
        self._waiting.append(run)
        self._admit()

    def kill(self) -> None:
        """Gone: nothing is sent any more."""
        for run in [*self._waiting, *self._prefilling, *self._decoding]:
            self._forget(run, "die")
        self.cache.clear()

    def _admit(self) -> None:
        while self._waiting and self._has_room_for(self._waiting[0]):
            run = self._waiting.popleft()
            run.call.outcome = "running"
            self._prefilling.add(run)
            due = self._prefill_time(run) + self.options.first_token_seconds
            run.timer = asyncio.get_running_loop().call_at(due, self._prefilled, run)

    def _has_room_for(self, run: Run) -> bool:
        if self.running >= self.options.max_num_seqs:
            return False
        return not self.running or self._blocks_used + self._blocks(run) <= self.options.kv_blocks

    def _prefill_time(self, run: Run) -> float:
        """When its prompt is read, after those before it: the engine reads so many tokens a second in all."""
        now = asyncio.get_running_loop().time()
        if not self.options.prefill_tokens_per_second:
            return now
        uncached = run.tokens - run.call.cached_tokens
        self._prefill_ends = max(now, self._prefill_ends) + uncached / self.options.prefill_tokens_per_second
        return self._prefill_ends

    def _prefilled(self, run: Run) -> None:
        self._prefilling.remove(run)
        self._decoding[run] = None
        self.cache.add(run.call.prompt_ids, run.call.body.get("cache_salt", ""))
        first = b"" if run.begun else run.events.first(run.counts())
        run.begun = True
        if first:
            run.connection.transport.write(first)
        self._advance(run)
        self.wake()

    def wake(self) -> None:
        """See to it that a step is due while something decodes."""
        if self._step_handle is not None or not self._decoding:
            return
        rate = self.options.tokens_per_second
        if not rate:
            self._step_handle = asyncio.get_running_loop().call_soon(self._step)
            return
        loop = asyncio.get_running_loop()
        interval, now = self.options.tokens_per_chunk / rate, loop.time()
        self._next_step += interval
        if not now - interval < self._next_step <= now + interval:  # it was idle, or cannot keep the pace
            self._next_step = now + interval
        self._step_handle = loop.call_at(self._next_step, self._step)

    def _step(self) -> None:
        self._step_handle = None
        self._make_room()
        advanced = [self._advance(run) for run in list(self._decoding)]
        if any(advanced) or self.options.tokens_per_second:  # at full speed, whoever can write again wakes us up
            self.wake()

    def _make_room(self) -> None:
        """The youngest starts again from its prompt and what it has said, as vLLM does; one at least goes on."""
        while len(self._decoding) > 1 and self._blocks_used > self.options.kv_blocks:
            run = next(reversed(self._decoding))
            del self._decoding[run]
            self._waiting.appendleft(run)
            self.preemptions += 1

    def _advance(self, run: Run) -> bool:
        """One chunk of one sequence. False when nothing could be sent."""
        call, connection = run.call, run.connection
        if run.silent or not connection.writable:
            return False
        if self.faults.stream and len(call.token_ids) >= self.faults.after:
            self._misbehave(run, self.faults.strike())
            return False
        ids: list[int] = []
        text, finish_reason = "", None
        while len(ids) < self.options.tokens_per_chunk and finish_reason is None:
            token_id, piece = self._draw(run)
            ids.append(token_id)
            call.token_ids.append(token_id)
            text += piece
            if token_id == self.model.vocabulary.eos_id:
                finish_reason = "stop"
            elif len(call.token_ids) >= run.max_tokens:
                finish_reason = "length"
        self.tokens += len(ids)
        self.chunks += 1
        data = run.events.tokens(text, ids, finish_reason, run.counts())
        if finish_reason is not None:
            self._finish(run, data)
        elif data:
            connection.transport.write(data)
        return True

    def _draw(self, run: Run) -> tuple[int, str]:
        may_stop = len(run.call.token_ids) >= run.min_tokens and not run.call.body.get("ignore_eos")
        return run.continuation.next(self.options.stop if may_stop else 0.0)

    def _finish(self, run: Run, data: bytes) -> None:
        connection = run.connection
        self._forget(run, "finished")
        self.finished += 1
        self.cache.add(run.call.prompt_ids + run.call.token_ids, run.call.body.get("cache_salt", ""))
        if isinstance(run.events, WholeCompletion):
            connection.answer(200, run.events.body(run.counts()))
            return
        connection.transport.write(data + run.events.end(run.counts()))
        connection.on_lost = None
        asyncio.get_running_loop().call_soon(connection.end_chunks)  # by itself, as uvicorn sends it

    def _abort(self, run: Run) -> None:
        """The client went away: the sequence is aborted, as vLLM does."""
        self.aborted += 1
        self._forget(run, "aborted")

    def _forget(self, run: Run, outcome: str) -> None:
        run.call.outcome = outcome
        run.silent = True
        if run.timer is not None:
            run.timer.cancel()
        if run in self._waiting:
            self._waiting.remove(run)
        self._prefilling.discard(run)
        self._decoding.pop(run, None)
        if outcome != "die":
            self._admit()

    def _chatter(self, run: Run) -> None:
        if not run.connection.transport.is_closing():
            run.connection.transport.write(chunk(b": still here\n\n"))
            run.timer = asyncio.get_running_loop().call_later(CHATTER_SECONDS, self._chatter, run)

    def _misbehave(self, run: Run, kind: str) -> None:
        run.silent = True
        transport = run.connection.transport
        if kind == "stall":
            return
        if kind == "chatter":
            self._chatter(run)
            return
        if kind == "die":
            self.kill()
            return
        run.connection.on_lost = None
        self._forget(run, kind)
        if kind == "reset":
            transport.abort()
            return
        chunks = {
            "error": error_event(500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
            "garbage": b"data: {]\n\n",
            "half": b'data: {"id":"cmpl-1","object":"text_comp',
            "end": b"",
            "count": b"",
        }
        data = chunks[kind]
        if kind == "count":
            transport.write(run.events.tokens("", [], None, run.counts(extra=1)))
        elif data:
            transport.write(chunk(data))
        if kind in ("error", "end"):
            transport.write(chunk(b"data: [DONE]\n\n"))
        run.connection.end_chunks()
