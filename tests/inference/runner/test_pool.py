"""Looks at replicas: what is wrong with one of them concerns no other, and nobody waits for it."""

import asyncio
import time

import pytest

from chatsite.database import run_db
from inference.models import Model, Replica
from inference.replicas import ReplicaState, published_states
from inference.runner import pool as pools
from inference.runner.member import Member
from inference.runner.pool import PROBE_SECONDS, Pool
from inference.runner.process import Runner
from tests.fakes.engine import FakeEngine
from tests.inference.runner.conftest import House
from tests.waiting import wait_until

BACK_SECONDS = 5.0  # within which a replica that is back is used, whatever the others do

FAULTS = {
    "not a number": {"figures": {"kv_cache_usage_perc": "NaN"}},
    "infinite": {"figures": {"num_requests_running": "+Inf"}},
    "a word": {"figures": {"num_preemptions_total": "many"}},
    "absurd": {"figures": {"num_gpu_blocks": "9" * 5000}},
    "no metrics": {"silent": ["/metrics"]},
    "no health": {"silent": ["/health"]},
    "stopped": {"silent": ["/health", "/metrics", "/v1/models", "/v1/completions"]},
}


def pool_of(runner: Runner, model: Model) -> Pool:
    return runner.dispatchers[model.name].pool


def member_of(pool: Pool, engine: FakeEngine) -> Member:
    return next(member for member in pool.members.values() if member.row.url == engine.url)


def misbehave(engine: FakeEngine, fault: str) -> None:
    for name, value in FAULTS[fault].items():
        setattr(engine.faults, name, value)


async def published(pool: Pool, engine: FakeEngine) -> ReplicaState | None:
    """What is told of it: without that, nothing is placed there."""
    [state] = await published_states(pool.client, pool.model.name, [member_of(pool, engine).row])
    return state


@pytest.mark.parametrize("fault", FAULTS)
async def test_s28_one_faulty_replica_blinds_nobody(house: House, big: Model, fault: str) -> None:
    faulty, other, others = await house.engine(), await house.engine(), await house.engine()
    await run_db(lambda: Replica.objects.exclude(url=others.url).update(model=big))
    await run_db(lambda: Model.objects.filter(name=big.name).update(engine_model=house.model.name))
    runner = await house.runner()
    pool, plain = pool_of(runner, big), pool_of(runner, house.model)

    async def both(state: ReplicaState) -> bool:
        return await published(pool, other) is await published(plain, others) is state

    await wait_until(lambda: both(ReplicaState.READY))
    await wait_until(lambda: member_of(pool, faulty).capkv)
    misbehave(faulty, fault)
    await asyncio.sleep(PROBE_SECONDS + 0.5)  # somebody looks at it
    for engine in (other, others):
        engine.kill()
    await wait_until(lambda: both(ReplicaState.DOWN), BACK_SECONDS)
    for engine in (other, others):
        await engine.start()
    await wait_until(lambda: both(ReplicaState.READY), BACK_SECONDS)
    assert (await house.ended(await house.ask(5))).status == "complete"
    if fault in ("no health", "stopped"):
        await wait_until(lambda: pool.usable() == {member_of(pool, other).id})
    else:
        assert member_of(pool, faulty).id in pool.usable()  # figures alone stop nothing
        assert member_of(pool, faulty).capkv > 0  # the last that could be right


async def test_a_fault_of_our_own_in_one_look_is_of_that_one_alone(house: House) -> None:
    first, second = await house.engine(), await house.engine()
    runner = await house.runner()
    pool = pool_of(runner, house.model)
    await wait_until(lambda: len(pool.usable()) == 2)

    async def broken() -> None:
        raise RuntimeError("a mistake")

    async def told(state: ReplicaState) -> bool:
        return await published(pool, second) is state

    member_of(pool, first).engine.stats = broken  # type: ignore[method-assign, assignment]
    await asyncio.sleep(PROBE_SECONDS)
    second.kill()
    await wait_until(lambda: told(ReplicaState.DOWN), BACK_SECONDS)
    await second.start()
    await wait_until(lambda: told(ReplicaState.READY), BACK_SECONDS)
    assert len(pool.usable()) == 2


async def test_who_fails_is_left_out_although_another_does_not_answer(house: House) -> None:
    engines = [await house.engine() for _ in range(4)]
    runner = await house.runner()
    pool = pool_of(runner, house.model)
    await wait_until(lambda: len(pool.usable()) == 4)
    misbehave(engines[0], "stopped")
    failing = member_of(pool, engines[1])
    for _ in range(5):
        failing.failed(time.monotonic())
    began = time.monotonic()
    await pool.probe()
    assert time.monotonic() - began < 1.5  # a look may take 4 s
    assert failing.id not in pool.usable()


async def test_a_request_that_failed_does_not_wait_for_an_engine_that_says_nothing(house: House) -> None:
    engine, _ = await house.engine(), await house.engine()
    runner = await house.runner()
    pool = pool_of(runner, house.model)
    await wait_until(lambda: len(pool.usable()) == 2)
    misbehave(engine, "stopped")
    began = time.monotonic()
    await pool.suspect(member_of(pool, engine))
    assert time.monotonic() - began < 1.7
    assert len(pool.usable()) == 1  # failed a request, and does not answer: it is not tried again
    engine.faults.silent = ()
    await wait_until(lambda: len(pool.usable()) == 2, BACK_SECONDS)


async def test_one_late_answer_is_a_busy_engine_and_two_are_a_stopped_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.vllm.LOOK_SECONDS", 0.1)
    monkeypatch.setattr(pools, "WAIT_SECONDS", 2.0)
    engine = await house.engine()
    runner = await house.runner()
    pool = pool_of(runner, house.model)
    await house.end(runner)  # nobody else looks
    engine.faults.silent = ["/health"]
    await pool.probe()
    assert len(pool.usable()) == 1
    engine.faults.silent = ()
    await pool.probe()
    engine.faults.silent = ["/health"]
    await pool.probe()
    assert len(pool.usable()) == 1  # not in a row
    await pool.probe()
    assert not pool.usable()
