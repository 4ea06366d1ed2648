"""A runner process: takes requests from the queues, streams them, keeps their leases, hands them over when it ends."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from chatsite.concurrency import end_tasks
from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from inference import sweep, tokenization, tuning
from inference.finishing import mark_released
from inference.models import Model, Replica
from inference.prompt_store import StoredPrompt
from inference.redis import keys, rules
from inference.runner import topup
from inference.runner.beats import Beats
from inference.runner.dispatch import Dispatcher
from inference.runner.flush import Flusher, Persister
from inference.runner.pool import PROBE_SECONDS, Pool
from inference.runner.reopening import reopen
from inference.runner.stream import Interruption, Stream
from inference.scheduling.answers import Answer

log = structlog.get_logger(__name__)
NUDGES = {"cancel": Interruption.CANCELLED, "preempt": Interruption.PREEMPTED}
HANDOVER_SECONDS = 3.0
REFRESH_SECONDS = 5.0  # how often the tables of models and settings are read again
EXCHANGE_SECONDS = 0.25  # how often what was placed where is told to the other runners
INTERRUPTIONS = {
    Answer.STALE: Interruption.FENCED,
    Answer.CANCELLED: Interruption.CANCELLED,
    Answer.PREEMPTED: Interruption.PREEMPTED,
}


class Runner:
    """Hundreds of streams in one event loop."""

    def __init__(self) -> None:
        self.id = new_id()
        self.client = async_client()
        self.streams: dict[UUID, Stream] = {}
        self.released: list[UUID] = []  # confirmed by Redis, to be noted in PostgreSQL with the next save
        self.flusher = Flusher(self)
        self.persister = Persister(self)
        self.dispatchers: dict[str, Dispatcher] = {}
        self.draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._reopening: set[UUID] = set()

    # Life

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then hands over what it has."""
        log.info("runner started", runner=str(self.id))
        loops = (
            self.flusher.run,
            self.persister.run,
            self._beat,
            self._watch,
            self._sweep,
            self._listen,
            self._exchange,
        )
        self._loops = [asyncio.create_task(_forever(loop.__qualname__, loop), name=loop.__qualname__) for loop in loops]
        await stop.wait()
        await self.hand_over()

    async def hand_over(self) -> None:
        """Requests go back to the queue at once, with what they have; another runner goes on from there."""
        self.draining = True
        deadline = time.monotonic() + HANDOVER_SECONDS
        while self._tasks and time.monotonic() < deadline:
            for stream in list(self.streams.values()):
                stream.interrupt(Interruption.HANDOVER)
            await asyncio.wait(self._tasks, timeout=0.5)
        await end_tasks(self._loops, within=1)
        for dispatcher in self.dispatchers.values():
            await dispatcher.pool.close()
        await self.note_released()
        log.info("runner ended", left=len(self._tasks))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Streams

    @property
    def room(self) -> int:
        """How many more streams this process takes."""
        return 0 if self.draining else settings.RUNNER_STREAMS - len(self.streams)

    async def run_stream(self, stream: Stream, prompt: StoredPrompt | None) -> None:
        self.streams[stream.id] = stream
        try:
            await stream.run(prompt)
        except Exception:
            # A mistake of ours in the last steps: the lease runs out, and the sweep brings the request to an end.
            log.exception("stream abandoned", request=str(stream.id))
        finally:
            stream.member.over(stream.sent)
            if self.streams.get(stream.id) is stream:
                del self.streams[stream.id]

    def reopen(self, stream: Stream) -> None:
        """Redis lost a stream's data; one attempt at a time to enter it again."""
        if stream.id not in self._reopening:
            self._reopening.add(stream.id)
            self.spawn(self._reopen(stream))

    async def _reopen(self, stream: Stream) -> None:
        try:
            if not await reopen(stream, self.id):
                stream.interrupt(Interruption.FENCED)
        except (RedisError, DatabaseError, InterfaceError, OSError) as error:
            log.warning("not re-opened yet", request=str(stream.id), error=str(error))  # the next heartbeat asks again
        finally:
            self._reopening.discard(stream.id)

    def prefilled(self, stream: Stream) -> None:
        """Its first token is there: what it held of the replica's prefill is given back at once, and gates may open."""
        self.spawn(self._prefilled(stream))

    async def _prefilled(self, stream: Stream) -> None:
        try:
            await stream.pool.scheduler.run(stream.pool.scheduler.first_token_call(stream.head.id, stream.attempt))
        except (RedisError, OSError) as error:
            log.warning("first token not told", request=str(stream.id), error=str(error))  # the next heartbeat tells it

    def top_up(self, streams: list[Stream]) -> None:
        """What they have reserved is nearly used up, and the next heartbeat is too far."""
        self.spawn(self._top_up(streams))

    async def _top_up(self, streams: list[Stream]) -> None:
        try:
            await topup.renew(self.client, streams)
        except (RedisError, OSError) as error:
            log.warning("reservations not topped up", streams=len(streams), error=str(error))  # the next heartbeat does

    def retry_soon(self, stream: Stream) -> None:
        asyncio.get_running_loop().call_later(0.2, self.flusher.mark, stream)

    async def note_released(self) -> None:
        if not self.released:
            return
        confirmed, self.released = self.released, []
        try:
            await run_db(mark_released, confirmed)
        except (DatabaseError, InterfaceError) as error:
            log.warning("releases not noted yet", error=str(error))
            self.released += confirmed

    # Loops

    async def _beat(self) -> None:
        """One call per model for all of its streams, tokens or not."""
        beats = Beats()
        while True:
            if await beats.next():
                self._abort_unrenewed()
            by_pool: dict[Pool, list[Stream]] = defaultdict(list)
            for stream in self.streams.values():
                by_pool[stream.pool].append(stream)
            try:
                for pool, streams in by_pool.items():
                    await self._renew(pool, streams)
                await topup.renew(self.client, self.streams.values())
            except (RedisError, OSError) as error:
                log.warning("leases not renewed", error=str(error))

    async def _renew(self, pool: Pool, streams: list[Stream]) -> None:
        sent = time.monotonic()
        answers = await pool.scheduler.heartbeat(
            [(stream.head.id, stream.attempt, len(stream.output.ids)) for stream in streams]
        )
        for stream, answer in zip(streams, answers, strict=True):
            if answer is Answer.UNKNOWN:
                self.reopen(stream)
                continue
            if answer is not Answer.STALE:
                stream.renewed_at = sent
            if answer in INTERRUPTIONS:
                stream.interrupt(INTERRUPTIONS[answer])

    def _abort_unrenewed(self) -> None:
        """A lease that may run out soon must not stream beside its successor."""
        limit = time.monotonic() - rules.settings().lease.abort_seconds
        for stream in list(self.streams.values()):
            if stream.renewed_at < limit:
                log.warning("lease not renewed in time", request=str(stream.id))
                stream.interrupt(Interruption.FENCED)

    async def _watch(self) -> None:
        """Takes up changes of the tables."""
        while True:
            await self._refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _refresh(self) -> None:
        await run_db(tuning.refresh)
        models = await run_db(_models)
        for model, rows in models:
            if model.name not in self.dispatchers:
                dispatcher = self.dispatchers[model.name] = Dispatcher(self, Pool(model, self.client))
                for name, loop in (("dispatch", dispatcher.run), ("look", partial(_look, dispatcher))):
                    self._loops.append(asyncio.create_task(_forever(f"{name} {model.name}", loop)))
            self.dispatchers[model.name].pool.refresh(model, rows)
        for model, _ in models:
            await _preload(model)

    async def _exchange(self) -> None:
        """What was placed where, to and from the other runners."""
        while True:
            await asyncio.sleep(EXCHANGE_SECONDS)
            for dispatcher in list(self.dispatchers.values()):
                await dispatcher.prefixes.exchange()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1)
            await sweep.sweep(loading={name for name, d in self.dispatchers.items() if d.pool.loading})

    async def _listen(self) -> None:
        """Nudges: work, free slots, stops. They may be lost; polls and heartbeats find what was missed."""
        async with self.client.pubsub() as channel:
            await channel.psubscribe(keys.ANY_WAKE)
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=5)
                if message is None:
                    continue
                kind, _, argument = message["data"].decode().partition(" ")
                if kind in NUDGES:
                    if (stream := self.streams.get(UUID(argument))) is not None:
                        stream.interrupt(NUDGES[kind])
                    continue
                model = keys.model_of(message["channel"].decode())
                if (dispatcher := self.dispatchers.get(model)) is not None:
                    dispatcher.wake()


async def _look(dispatcher: Dispatcher) -> None:
    """At replicas and queues, once a second. Each model's by itself: one does not wait for another's engines."""
    await _preload(dispatcher.pool.model)  # before a stream needs it
    while True:
        began = time.monotonic()
        await dispatcher.look()
        await asyncio.sleep(max(PROBE_SECONDS / 2, began + PROBE_SECONDS - time.monotonic()))


async def _preload(model: Model) -> None:
    """One that cannot be loaded keeps no other model waiting; whoever needs it is told."""
    try:
        if model.enabled:
            await tokenization.preload(model)
    except Exception:
        log.warning("tokenizer not loaded", model=model.name, exc_info=True)


async def _forever(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """A loop that fails is logged and begins again: a runner without one of them would be worse than either."""
    while True:
        try:
            await loop()
        except Exception as error:
            log.warning(
                "loop failed", loop=name, error=f"{type(error).__name__}: {error}", exc_info=not _expected(error)
            )
            await asyncio.sleep(0.5)


def _expected(error: Exception) -> bool:
    return isinstance(error, (RedisError, DatabaseError, InterfaceError, OSError))


def _models() -> list[tuple[Model, list[Replica]]]:
    return [
        (model, [row for row in model.replicas.all() if row.enabled and model.enabled])
        for model in Model.objects.prefetch_related("replicas")
    ]
