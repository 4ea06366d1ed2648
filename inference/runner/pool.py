"""The replicas of one model as a runner sees them: which may be used, what is told to the other processes."""

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Mapping

import structlog
from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chatsite.concurrency import end_tasks
from chatsite.ids import new_id
from inference.models import Model, Replica
from inference.redis import keys, rules
from inference.redis.scheduler import Scheduler
from inference.replicas import ReplicaState, session
from inference.runner.member import Member
from inference.scheduling.health import ejected, usable
from inference.vllm import Engine, EngineCall, EngineError, EngineStalled

PROBE_SECONDS = 1.0
WAIT_SECONDS = 0.5  # for the answers to a round of looks: those that come later count when they come
SUSPECT_SECONDS = 1.0  # for an engine on which a request has failed: that one waits meanwhile
LATE_LOOKS = 2  # in a row: it works no more. One alone may be a busy engine
# Whoever is not up by then is not on its way, and waiting requests may time out. One that we start is being installed.
LOADING_SECONDS = {True: 900.0, False: 60.0}
RATE_PROBE_TOKENS = 512

log = structlog.get_logger(__name__)


class Pool:
    """Members by replica id."""

    def __init__(self, model: Model, client: Redis) -> None:
        self.model = model
        self.client = client
        self.scheduler = Scheduler(client, model.name)
        self.members: dict[str, Member] = {}
        self.restarted: set[str] = set()  # replicas that have come up since somebody asked
        self._known_usable: set[str] = set()  # as of the last round
        self._looks: dict[asyncio.Task[None], Member] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}

    def refresh(self, model: Model, rows: list[Replica]) -> None:
        """Takes over the table: new replicas come in, those that are gone get no new requests.

        One with another address is another one: nothing that is known of it holds there.
        """
        self.model = model
        wanted = {str(row.id): row for row in rows}
        for gone in set(self.members) - set(wanted):
            del self.members[gone]
        for id, row in wanted.items():
            if id not in self.members or self.members[id].row.url != row.url:
                engine = Engine(row.url, session())
                self.members[id] = Member(row, engine, settings.REPLICA_SLOTS, settings.PREFILL_TOKENS_PER_SECOND)

    @property
    def ready(self) -> list[Member]:
        return [member for member in self.members.values() if member.state is ReplicaState.READY]

    def usable(self, coming: Mapping[str, int] | None = None) -> set[str]:
        """Ids of the ready replicas that take another request, as far as their failures go.

        `coming`: by id, requests that are about to be sent there.
        """
        more = coming or {}
        pool = {each.id: (each.breaker, each.trying + more.get(each.id, 0)) for each in self.ready}
        return usable(rules.settings(), pool, time.monotonic())

    @property
    def loading(self) -> bool:
        """Nothing can answer yet, but something is on its way."""
        return not self.ready and any(member.state is ReplicaState.LOADING for member in self.members.values())

    @property
    def block_size(self) -> int:
        """Tokens of a block of the engines' prefix caches; 0 is not known."""
        return max((member.block_size for member in self.members.values()), default=0)

    # Probes

    async def probe(self) -> bool:
        """A round of looks: asks each engine how it is, and tells it; True when one became usable.

        Nobody waits for an engine that takes its time: its look goes on by itself, and a later round tells its outcome.
        """
        # Without background work only what is not ready is asked; one that was is looked at when a request fails on it.
        wanted = [m for m in self.members.values() if settings.BACKGROUND or m.state is not ReplicaState.READY]
        under_way = set(self._looks.values())
        begun = [self._begin(member, self._look(member)) for member in wanted if member not in under_way]
        if begun:
            await asyncio.wait(begun, timeout=WAIT_SECONDS)
        self._eject()
        await self.publish()
        before, self._known_usable = self._known_usable, self.usable()
        return bool(self._known_usable - before)

    def _eject(self) -> None:
        now = time.monotonic()
        breakers = {member.id: member.breaker for member in self.ready}
        for id, breaker in ejected(rules.settings(), breakers, now).items():
            if breaker is not breakers[id]:
                log.warning("replica ejected", replica=id, seconds=breaker.until - now)
            self.members[id].breaker = breaker

    async def suspect(self, member: Member) -> None:
        """A request has failed on it: looks at once, and tells the other processes.

        One that does not answer at once either works no more. Raises RedisError.
        """
        check = self._begin(member, self._check(member))
        await asyncio.wait([check], timeout=SUSPECT_SECONDS)
        if not check.done():
            self._unhealthy(member)
        self._eject()
        await self.publish()

    def _begin(self, member: Member, look: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(_isolated(member, look))
        self._looks[task] = member
        task.add_done_callback(self._looks.pop)
        return task

    async def _look(self, member: Member) -> None:
        await self._check(member)
        if member.state is not ReplicaState.READY or member.late:
            return
        await self._scrape(member)
        if not member.peak_rate:
            await self._learn_rate(member)

    async def _check(self, member: Member) -> None:
        """Whether it works, and as what it serves the model."""
        try:
            healthy = await member.engine.health()
            if healthy and (member.state is not ReplicaState.READY or not member.served_name):
                member.served_name = await self._served_name(member)
        except EngineStalled:
            member.late += 1
            if member.state is ReplicaState.READY and member.late < LATE_LOOKS:
                log.warning("replica late", url=member.row.url)
                return
            healthy = False
        except EngineError as error:
            log.warning("replica refused", url=member.row.url, error=str(error))
            healthy = False
        if not healthy:
            self._unhealthy(member)
            return
        member.late = 0
        if member.state is not ReplicaState.READY:
            log.info("replica ready", url=member.row.url, model=self.model.name)
            member.came_back()
            self.restarted.add(member.id)

    def _unhealthy(self, member: Member) -> None:
        if member.state is ReplicaState.READY:
            log.warning("replica down", url=member.row.url, model=self.model.name)
            member.went_down()
            return
        waited = time.monotonic() - member.loading_since
        if member.state is ReplicaState.LOADING and waited > LOADING_SECONDS[member.row.managed]:
            member.state = ReplicaState.DOWN

    async def _scrape(self, member: Member) -> None:
        """Never a reason to stop using it: figures that are missing or old make it look busier, that is all."""
        try:
            stats = await member.engine.stats()
        except EngineError as error:
            level = log.warning if member.measured else log.debug  # once, not each second
            level("no metrics", url=member.row.url, error=f"{type(error).__name__}: {error}")
            member.measured = False
            return
        member.scraped(stats, await self._read(member))

    async def _read(self, member: Member) -> int:
        """Tokens of prompts on it. While nobody can say, none: then nothing is thought to be shared."""
        try:
            read = await self.client.hget(keys.replica(self.scheduler.prefix, member.row.id), "read")  # type: ignore[misc]
        except (RedisError, OSError) as error:
            log.debug("no counters", url=member.row.url, error=str(error))
            return 0
        return int(read or 0)

    async def _served_name(self, member: Member) -> str:
        served = await member.engine.served_models()
        names = [each.name for each in served]
        wanted = self.model.engine_model or (self.model.name if self.model.name in names else "")
        if wanted and wanted not in names:
            raise EngineError(f"the engine serves {', '.join(names) or 'nothing'}, not {wanted}")
        if not names:
            raise EngineError("the engine serves no model")
        return wanted or names[0]

    async def _learn_rate(self, member: Member) -> None:
        """A first figure of how fast it prefills: what another runner knows, or a prompt of our own, by the way."""
        known = await self.client.hget(keys.replica(self.scheduler.prefix, member.row.id), "rate")  # type: ignore[misc]
        if known and float(known) > 0:
            member.peak_rate = float(known)
        elif member.id not in self._measuring:
            task = self._measuring[member.id] = asyncio.create_task(_isolated(member, self._measure_rate(member)))
            task.add_done_callback(lambda _: self._measuring.pop(member.id, None))

    async def _measure_rate(self, member: Member) -> None:
        length = min(RATE_PROBE_TOKENS, self.model.context_length // 2)
        call = EngineCall(
            member.served_name, [5 + at % 50 for at in range(length)], max_tokens=1, cache_salt=str(new_id())
        )
        began = time.monotonic()
        try:
            async for _ in member.engine.stream(call, first_token_timeout=60, idle_timeout=60):
                break
        except EngineError as error:
            log.warning("prefill rate not measured", url=member.row.url, error=str(error))
            return
        member.peak_rate = member.peak_rate or length / (time.monotonic() - began)
        log.info("prefill rate measured", url=member.row.url, tokens_per_second=round(member.peak_rate))
        with contextlib.suppress(RedisError, OSError):  # the next probe tells it
            await self.publish()

    async def close(self) -> None:
        """Nothing is asked any more."""
        await end_tasks([*self._looks, *self._measuring.values()], within=1)

    # What the other processes and the operations are told

    async def publish(self) -> None:
        """State, and what each holds. Until this is there, the operations place nothing on a replica."""
        now = int(time.time() * 1000)
        async with self.client.pipeline(transaction=False) as pipe:
            for member in self.members.values():
                pipe.hset(keys.replica(self.scheduler.prefix, member.row.id), mapping=_described(member, now))
            fastest = max((member.peak_rate for member in self.ready), default=0.0)
            pipe.hset(keys.pace(self.scheduler.prefix), "rate", fastest)  # type: ignore[arg-type]
            await pipe.execute()


async def _isolated(member: Member, work: Coroutine[None, None, None]) -> None:
    """Whatever goes wrong with one replica concerns no other."""
    try:
        await work
    except Exception as error:
        expected = isinstance(error, (RedisError, OSError))
        said = f"{type(error).__name__}: {error}"
        log.warning("replica not looked at", url=member.row.url, error=said, exc_info=not expected)


def _described(member: Member, now: int) -> dict[str, str | int | float]:
    return {
        "state": member.state.value,
        "seen": now,
        "open": int(member.state is ReplicaState.READY),
        "capn": member.capn,
        "capkv": member.capkv,
        "rate": member.peak_rate if math.isfinite(member.peak_rate) else 0.0,
    }
