"""Engines as every process sees them: the HTTP session to them, and what the runners last said of each."""

import asyncio
import time
from enum import StrEnum
from weakref import WeakKeyDictionary

from aiohttp import ClientSession
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from chatsite.database import run_db
from inference.errors import EngineUnavailable
from inference.models import Model, Replica
from inference.redis import keys
from inference.vllm import Engine, EngineError, new_session

FRESH_MS = 10_000  # a state older than this says nothing: no runner looks

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


class ReplicaState(StrEnum):
    """What probes say: loading was never ready, or is being restarted by us; down was ready once."""

    LOADING = "loading"
    READY = "ready"
    DOWN = "down"


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
