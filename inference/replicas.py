"""What a process knows of its engines: clients, the engine's name for its model, probes, what all processes share."""

import asyncio
import time
from dataclasses import dataclass
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from aiohttp import ClientSession
from django.conf import settings
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from chatsite.database import run_db
from inference.errors import EngineUnavailable
from inference.models import Model, Replica
from inference.redis import keys
from inference.redis.scheduler import Scheduler
from inference.routing import ReplicaState, ReplicaView, eject_failing, usable
from inference.vllm import Engine, EngineError, new_session

PROBE_SECONDS = 1.0
# Whoever is not up by then is not on its way, and waiting requests may time out. One that we start is being installed.
LOADING_SECONDS = {True: 900.0, False: 60.0}
REFRESH_SECONDS = 5.0  # how often the table of replicas is read again
FRESH_MS = 10_000  # a state older than this says nothing: no runner looks

log = structlog.get_logger(__name__)
_sessions: "WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession]" = WeakKeyDictionary()


def session() -> ClientSession:
    """The running loop's HTTP session."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions or _sessions[loop].closed:
        _sessions[loop] = new_session()
    return _sessions[loop]


async def close_session() -> None:
    existing = _sessions.pop(asyncio.get_running_loop(), None)
    if existing is not None:
        await existing.close()


@dataclass
class Member:
    """A replica of a pool: how to reach it, and how it does."""

    row: Replica
    engine: Engine
    view: ReplicaView
    served_name: str = ""


class Pool:
    """The replicas of one model, as this runner sees them."""

    def __init__(self, model: Model, client: Redis) -> None:
        self.model = model
        self.client = client
        self.scheduler = Scheduler(client, model.name)
        self.members: dict[UUID, Member] = {}

    def refresh(self, model: Model, rows: list[Replica]) -> None:
        """Takes over the table: new replicas come in, those that are gone get no new requests."""
        self.model = model
        wanted = {row.id: row for row in rows}
        for replica_id in set(self.members) - set(wanted):
            del self.members[replica_id]
        for row in rows:
            if row.id not in self.members:
                view = ReplicaView(row.id, settings.REPLICA_SLOTS, loading_since=time.monotonic())
                self.members[row.id] = Member(row, Engine(row.url, session()), view)

    def usable(self) -> list[ReplicaView]:
        return usable((member.view for member in self.members.values()), time.monotonic())

    @property
    def loading(self) -> bool:
        """Nothing can answer yet, but something is on its way."""
        views = [member.view for member in self.members.values()]
        ready = any(view.state is ReplicaState.READY for view in views)
        return not ready and any(view.state is ReplicaState.LOADING for view in views)

    async def probe(self) -> bool:
        """Asks each engine how it is; True when one became usable."""
        before = {view.id for view in self.usable()}
        # Without background work only what is not ready is asked; one that was is looked at when a request fails on it.
        wanted = [m for m in self.members.values() if settings.BACKGROUND or m.view.state is not ReplicaState.READY]
        await asyncio.gather(*(self._probe(member) for member in wanted))
        for view in eject_failing((member.view for member in self.members.values()), time.monotonic()):
            log.warning("replica ejected", replica=str(view.id), seconds=view.ejected_until - time.monotonic())
        await self._publish()
        return bool({view.id for view in self.usable()} - before)

    async def suspect(self, member: Member) -> None:
        """A request has failed on it: looks at once, and tells the other processes."""
        member.view.failed()
        await self._probe(member)
        await self._publish()

    async def _probe(self, member: Member) -> None:
        view = member.view
        try:
            healthy = await member.engine.health()
            if healthy and (view.state is not ReplicaState.READY or not member.served_name):
                member.served_name = await self._served_name(member)
        except EngineError as error:
            log.warning("replica refused", url=member.row.url, error=str(error))
            healthy = False
        if healthy and view.state is not ReplicaState.READY:
            log.info("replica ready", url=member.row.url, model=self.model.name)
            view.state, view.failures = ReplicaState.READY, 0
        elif not healthy:
            self.mark_down(member)
            if (
                view.state is ReplicaState.LOADING
                and time.monotonic() - view.loading_since > LOADING_SECONDS[member.row.managed]
            ):
                view.state = ReplicaState.DOWN

    async def _served_name(self, member: Member) -> str:
        served = await member.engine.served_models()
        names = [each.name for each in served]
        wanted = self.model.engine_model or (self.model.name if self.model.name in names else "")
        if wanted and wanted not in names:
            raise EngineError(f"the engine serves {', '.join(names) or 'nothing'}, not {wanted}")
        if not names:
            raise EngineError("the engine serves no model")
        return wanted or names[0]

    def mark_down(self, member: Member) -> None:
        """Out of rotation at once; an engine that we start ourselves is being restarted."""
        if member.view.state is ReplicaState.READY:
            log.warning("replica down", url=member.row.url, model=self.model.name)
            member.view.state = ReplicaState.LOADING if member.row.managed else ReplicaState.DOWN
            member.view.loading_since = time.monotonic()

    async def _publish(self) -> None:
        now = int(time.time() * 1000)
        async with self.client.pipeline(transaction=False) as pipe:
            for member in self.members.values():
                pipe.hset(
                    keys.replica(self.scheduler.prefix, member.row.id),
                    mapping={"state": member.view.state.value, "seen": now},
                )
            await pipe.execute()


def _enabled_replicas(model: Model) -> list[Replica]:
    return list(Replica.objects.filter(model=model, enabled=True))


async def published_states(client: Redis, model: str, replicas: list[Replica]) -> list[ReplicaState | None]:
    """What the runners last said of each; None when nobody looks."""
    prefix = keys.scheduler(model)
    async with client.pipeline(transaction=False) as pipe:
        for row in replicas:
            pipe.hmget(keys.replica(prefix, row.id), ["state", "seen"])
        return _fresh(await pipe.execute())


def published_states_now(client: SyncRedis, replicas: list[Replica]) -> list[ReplicaState | None]:
    """`published_states` of replicas of any models, for pages that wait. Raises RedisError."""
    with client.pipeline(transaction=False) as pipe:
        for row in replicas:
            pipe.hmget(keys.replica(keys.scheduler(row.model_id), row.id), ["state", "seen"])
        return _fresh(pipe.execute())


def _fresh(answers: list[tuple[bytes | None, bytes | None]]) -> list[ReplicaState | None]:
    now = time.time() * 1000
    return [
        ReplicaState(state.decode()) if state and seen and now - int(seen) < FRESH_MS else None
        for state, seen in answers
    ]


async def any_engine(model: Model) -> tuple[Engine, str]:
    """An engine that can be asked to tokenize, and its name for the model. Raises EngineUnavailable."""
    for row in await run_db(_enabled_replicas, model):
        engine = Engine(row.url, session())
        try:
            served = await engine.served_models()
        except EngineError:
            continue  # the next one may do it; if none does, the caller is told
        if served:
            return engine, model.engine_model or served[0].name
    raise EngineUnavailable("No engine of this model answers yet: it is loading, or down.", retry_after=5)
