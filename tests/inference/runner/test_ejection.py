"""Replicas that fail requests: who is left out, how one is tried again, and where what failed goes."""

import asyncio
import time

import pytest

from inference import services
from inference.runner.member import Member
from inference.runner.output import Output
from inference.runner.pool import Pool
from inference.runner.process import Runner
from inference.scheduling.health import Breaker
from tests.fakes.engine import FakeEngine
from tests.inference.runner.conftest import PROMPT, House
from tests.waiting import wait_until


def pool_of(runner: Runner) -> Pool:
    [dispatcher] = runner.dispatchers.values()
    return dispatcher.pool


def member_of(runner: Runner, engine: FakeEngine) -> Member:
    [member] = [each for each in pool_of(runner).members.values() if each.row.url == engine.url]
    return member


async def all_ready(runner: Runner, house: House) -> None:
    await wait_until(lambda: len(pool_of(runner).ready) == len(house.engines))


async def test_s28_the_end_of_an_old_stream_does_not_let_an_ejected_replica_in_again(house: House) -> None:
    bad, good = await house.engine(tokens_per_second=60), await house.engine(tokens_per_second=60)
    runner = await house.runner()
    await all_ready(runner, house)
    old = [await house.ask(240, prompt=[5, number]) for number in range(4)]
    for message in old:
        await house.emitted(message, 1)
    assert bad.running and good.running
    bad.faults.status = 500
    suspect = member_of(runner, bad)
    new = [await house.ask(2, prompt=[6, number]) for number in range(16)]
    await wait_until(lambda: suspect.breaker.ejections == 1)
    assert bad.running
    for message in [*old, *new]:
        assert (await house.ended(message)).status == "complete"
    assert suspect.breaker.ejections == 1
    assert pool_of(runner).usable() == {member_of(runner, good).id}
    await house.nothing_is_held()


async def test_s28_a_replica_that_was_killed_with_many_streams_is_used_at_once_when_it_is_back(house: House) -> None:
    killed, other = await house.engine(tokens_per_second=60), await house.engine(tokens_per_second=60)
    runner = await house.runner()
    await all_ready(runner, house)
    messages = [await house.ask(60, prompt=[5, number]) for number in range(16)]
    for message in messages:
        await house.emitted(message, 1)
    assert killed.running >= 6 and other.running >= 6
    killed.kill()
    member = member_of(runner, killed)
    await wait_until(lambda: member not in pool_of(runner).ready)
    for message in messages:
        assert (await house.ended(message)).status == "complete"
    await killed.start()
    await wait_until(lambda: member in pool_of(runner).ready)
    await pool_of(runner).probe()
    assert member.id in pool_of(runner).usable()
    before = len(killed.calls)
    done = [await house.ended(await house.ask(5, prompt=[6, number])) for number in range(3)]
    assert {each.status for each in done} == {"complete"}
    assert len(killed.calls) > before
    assert not member.breaker.trial
    await house.nothing_is_held()


async def test_s28_two_bad_replicas_of_four_use_up_nobodys_attempts(house: House, settings: object) -> None:
    settings.REPLICA_SLOTS = 2  # type: ignore[attr-defined]
    engines = [await house.engine(tokens_per_second=100) for _ in range(4)]
    runner = await house.runner()
    await all_ready(runner, house)
    for engine in engines[:2]:
        engine.faults.status = 500
    messages = [await house.ask(30, prompt=[5, number]) for number in range(20)]
    done = await asyncio.gather(*(house.ended(message, 30) for message in messages))
    assert {(each.status, each.error_code) for each in done} == {("complete", "")}
    await house.nothing_is_held()


async def test_s28_a_half_open_replica_has_one_request_until_that_has_shown_that_it_answers(house: House) -> None:
    tried, other = await house.engine(tokens_per_second=20), await house.engine(tokens_per_second=20)
    runner = await house.runner()
    await all_ready(runner, house)
    member = member_of(runner, tried)
    member.breaker = Breaker(4, 1, 0.0, trial=True, since=time.monotonic())
    messages = [await house.ask(60, prompt=[*PROMPT, number]) for number in range(8)]
    for message in messages:
        await house.emitted(message, 1)
    assert (tried.running, other.running) == (1, 7)
    await wait_until(lambda: not member.breaker.trial)
    later = [await house.ask(20, prompt=[6, number]) for number in range(4)]
    await wait_until(lambda: tried.running > 2)
    assert member.breaker.failures == 4  # that is forgiven at its end
    for message in [*messages, *later]:
        assert (await house.ended(message)).status == "complete"
    assert member.breaker == Breaker(since=member.breaker.since)
    await house.nothing_is_held()


async def test_a_mistake_of_ours_is_no_failure_of_the_replica(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await house.engine()
    runner = await house.runner()
    await all_ready(runner, house)

    def broken(*_: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(Output, "begin", broken)
    messages = [await house.ask(5, prompt=[5, number]) for number in range(3)]
    done = [await house.ended(message, 30) for message in messages]
    assert {(each.status, each.error_code) for each in done} == {("failed", "engine_unavailable")}
    assert member_of(runner, engine).breaker.failures == 0
    await house.nothing_is_held()


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_whatever_ends_a_try_makes_place_for_the_next(house: House, ending: str) -> None:
    engine = await house.engine(tokens_per_second=20)
    runner = await house.runner()
    member = member_of(runner, engine)
    member.breaker = Breaker(0, 1, 0.0, trial=True, since=time.monotonic())
    message = await house.ask(60)
    await house.emitted(message, 1)
    assert member.trying == 1
    if ending == "cancelled":
        await services.cancel(message.request_id)
    else:
        engine.kill()
    await wait_until(lambda: not runner.streams)
    assert member.trying == 0
