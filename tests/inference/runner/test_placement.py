"""Where requests go: cached prefixes, gates, KV memory, preemption; and what is kept of why."""

import asyncio

import pytest

from chatsite.database import run_db
from chatsite.redis import async_client
from conversations.models import Message
from inference.models import Replica, Request
from inference.prompt_store import StoredPrompt
from inference.protocol import Sampling
from inference.redis import keys
from inference.redis.scheduler import Scheduler
from inference.runner.process import Runner
from inference.scheduling.prediction import Prediction
from tests.inference.runner.conftest import House
from tests.tuning import atune
from tests.waiting import wait_until

SAMPLING = Sampling(1)
LONG = list(range(1000, 1600))


def dispatcher(runner: Runner):  # type: ignore[no-untyped-def]
    [only] = runner.dispatchers.values()
    return only


async def block_size_is_known(runner: Runner) -> None:
    await wait_until(lambda: dispatcher(runner).prefixes.hashes("any", StoredPrompt(bytes(4 * 600), SAMPLING, "")))


async def why(house: House, message: Message) -> str:
    """Of the last attempt."""
    return str((await house.request(message)).decision["attempts"][-1]["why"])


async def test_a_conversation_stays_where_its_prompt_is_cached(house: House) -> None:
    await atune(score={"exploration": 0.0})
    first, second = await house.engine(), await house.engine()
    runner = await house.runner()
    await block_size_is_known(runner)
    one = await house.ask(20, prompt=LONG)
    await house.ended(one)
    home, other = (first, second) if first.calls else (second, first)
    for turn in range(4):
        message = await house.ask(20, prompt=[*LONG, *range(turn + 1)])
        await house.ended(message)
        assert await why(house, message) == "sticky"
    assert (len(home.calls), len(other.calls)) == (5, 0)
    assert home.calls[-1].cached_tokens == 512  # four blocks of 128


async def test_runners_know_of_each_others_placements(house: House) -> None:
    await atune(score={"exploration": 0.0})
    engines = [await house.engine() for _ in range(3)]
    runner = await house.runner()
    await block_size_is_known(runner)
    await house.ended(await house.ask(20, prompt=LONG))
    [home] = [engine for engine in engines if engine.calls]
    announced = keys.prefixes(keys.scheduler(house.model.name))
    await wait_until(lambda: async_client().exists(announced))
    await house.end(runner)
    other = await house.runner()
    await wait_until(lambda: len(dispatcher(other).prefixes) > 0)
    message = await house.ask(20, prompt=[*LONG, 5])
    await house.ended(message)
    assert await why(house, message) == "sticky"
    assert len(home.calls) == 2


async def test_cached_prompts_of_another_isolation_domain_are_not_looked_for(house: House) -> None:
    first, second = await house.engine(), await house.engine()
    runner = await house.runner()
    await block_size_is_known(runner)
    await house.ended(await house.ask(20, prompt=LONG, salt="one"))
    message = await house.ask(20, prompt=LONG, salt="two")
    await house.ended(message)
    assert await why(house, message) == "best"
    assert [call.cached_tokens for engine in (first, second) for call in engine.calls] == [0, 0]


async def test_an_engine_is_given_no_more_prefill_than_the_gate_lets(house: House, settings: object) -> None:
    settings.PREFILL_TOKENS_PER_SECOND = 1000.0  # type: ignore[attr-defined]
    engine = await house.engine(prefill_tokens_per_second=2000, tokens_per_second=50)
    runner = await house.runner()
    messages = [await house.ask(5, prompt=[*LONG, number], salt=str(number)) for number in range(4)]
    most = 0
    while not all([(await house.request(message)).released_at for message in messages]):
        most = max(most, len([call for call in engine.calls if call.outcome == "running" and not call.token_ids]))
        await asyncio.sleep(0.01)
    assert most == 1  # 601 tokens each, and the gate of the paid lane is 1,000
    assert dispatcher(runner).pool.ready[0].health > 0.2
    await house.nothing_is_held()


async def test_a_request_waits_while_the_engines_memory_is_promised(house: House) -> None:
    engine = await house.engine(kv_blocks=16, tokens_per_second=100)  # 2,048 tokens
    runner = await house.runner()
    await wait_until(lambda: dispatcher(runner).pool.ready[0].capkv > 0)
    await dispatcher(runner).pool.publish()
    messages = [await house.ask(60, prompt=[*LONG, number], salt=str(number)) for number in range(4)]
    most = 0
    while not all([(await house.request(message)).released_at for message in messages]):
        most = max(most, engine.running)
        await asyncio.sleep(0.01)
    assert most == 2  # three of 661 tokens would fit without the engine's last twentieth
    await house.nothing_is_held()


async def test_what_prompts_have_in_common_is_promised_for_one_of_them_only(house: House) -> None:
    await house.engine(kv_blocks=16)  # 2,048 tokens
    runner = await house.runner()
    pool = dispatcher(runner).pool
    await wait_until(lambda: pool.ready and pool.ready[0].capkv == 1945)
    [member] = pool.ready
    replica = keys.replica(pool.scheduler.prefix, member.row.id)
    await pool.client.hset(replica, "read", 3000)
    await wait_until(lambda: member.capkv == 4945)  # the engine holds nothing of those 3,000
    await pool.publish()
    assert int(await pool.client.hget(replica, "capkv")) == 4945
    await pool.client.hdel(replica, "read")


async def test_a_paid_request_takes_the_place_of_a_free_one_before_its_first_token(
    house: House, settings: object
) -> None:
    settings.REPLICA_SLOTS = 1  # type: ignore[attr-defined]
    engine = await house.engine(first_token_seconds=30)
    runner = await house.runner()
    foresight = dispatcher(runner).foresight
    for _ in range(25):  # it has seen enough to decide by
        foresight._predictors["paid"].observe(Prediction(2.0, 2.0, 2.0, True), 2.0, 0.0)
    free = await house.ask(20, tier="free")
    await wait_until(lambda: engine.running == 1)
    paid = await house.ask(20)
    scheduler = Scheduler(async_client(), house.model.name)

    async def taken_over() -> bool:
        running = await scheduler.running()
        return [each.id for each in running] == [str(paid.request_id)]

    await wait_until(taken_over, 5)
    engine.options.first_token_seconds = 0
    place = await scheduler.place(str(free.request_id))
    assert place is not None and place.preemptions == 1
    await runner_restarts(house, runner)
    assert (await house.ended(paid, 15)).status == "complete"
    assert (await house.ended(free, 15)).status == "complete"
    attempts = (await house.request(free)).decision["attempts"]
    assert [each["preemptions"] for each in attempts] == [0, 1]
    await house.nothing_is_held()


async def runner_restarts(house: House, runner: Runner) -> None:
    """So that nothing waits for first tokens of the slow past."""
    await house.end(runner)
    await house.runner()


async def test_what_a_request_waits_for_is_predicted_and_learned_from(house: House) -> None:
    await house.engine()
    runner = await house.runner()
    foresight = dispatcher(runner).foresight
    await dispatcher(runner).look()
    assert foresight.seen is not None and len(foresight.seen.places) == 1
    predicted = foresight.seen.prediction("paid", 100, 20)
    assert not predicted.trusted and predicted.raw < 1

    await house.end(runner)
    message = await house.ask(5)
    decision = {"predicted": {"raw": 0.01, "expected": 0.01, "p90": 0.01}}
    await run_db(lambda: Request.objects.filter(id=message.request_id).update(decision=decision))
    second = await house.runner()
    await house.ended(message)
    [ratios] = [seen.ratios for seen in dispatcher(second).foresight._predictors["paid"]._seen.values()]
    assert len(ratios) == 1
    assert await async_client().exists(keys.forecast(keys.scheduler(house.model.name)))


async def test_a_model_without_a_rate_is_measured_when_it_comes_up(house: House, settings: object) -> None:
    settings.PREFILL_TOKENS_PER_SECOND = 0.0  # type: ignore[attr-defined]
    engine = await house.engine(prefill_tokens_per_second=5000)
    runner = await house.runner()
    pool = dispatcher(runner).pool
    await wait_until(lambda: pool.ready[0].peak_rate > 0)
    assert 1000 < pool.ready[0].peak_rate < 6000
    assert len(engine.calls) == 1 and len(engine.calls[0].prompt_ids) == 512
    second = await house.runner()
    await wait_until(lambda: dispatcher(second).pool.ready and dispatcher(second).pool.ready[0].peak_rate > 0)
    assert len(engine.calls) == 1  # the other runner had told it


async def test_s27_no_replica_takes_more_than_its_slots_while_probes_go_on(house: House, settings: object) -> None:
    settings.REPLICA_SLOTS = 2  # type: ignore[attr-defined]
    engines = [await house.engine(tokens_per_second=25) for _ in range(2)]
    runners = [await house.runner() for _ in range(2)]
    messages = [await house.ask(10, prompt=[5, number]) for number in range(16)]
    most = 0
    while not all([(await house.request(message)).released_at for message in messages]):
        most = max(most, *(engine.running + engine.waiting for engine in engines))
        for runner in runners:
            await dispatcher(runner).pool.probe()
    assert most == 2
    assert min(len(engine.calls) for engine in engines) >= 4  # both did their part
    await house.nothing_is_held()


async def test_s28_a_replica_that_fails_requests_is_left_out_although_its_probe_is_green(house: House) -> None:
    bad, good = await house.engine(), await house.engine()
    bad.faults.status = 500
    runner = await house.runner()
    for number in range(12):
        done = await house.ended(await house.ask(5, prompt=[5, number]))
        assert done.status == "complete"
    await dispatcher(runner).look()
    pool = dispatcher(runner).pool
    assert {pool.members[id].engine.base_url for id in pool.usable()} == {good.url}
    assert len(pool.ready) == 2  # /health is green
    assert len(bad.calls) == 0 and len(good.calls) == 12
    await house.nothing_is_held()


async def test_metrics_that_are_missing_or_frozen_stop_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await house.engine()
    monkeypatch.setattr(engine, "_metrics", lambda request: request.connection.answer(500, {}))
    await house.runner()
    assert (await house.ended(await house.ask(5))).status == "complete"


@pytest.mark.long
async def test_two_hundred_requests_end_while_engines_come_and_go(house: House) -> None:
    engines = [await house.engine(tokens_per_second=100) for _ in range(4)]
    await house.runner()
    await house.runner()
    messages = []

    async def unrest() -> None:
        for second in range(15):
            engine = engines[second % 4]
            engine.kill()
            await asyncio.sleep(1)
            await engine.start()

    trouble = asyncio.create_task(unrest())
    for number in range(200):
        messages.append(await house.ask(20, prompt=[5, number]))
        await asyncio.sleep(0.05)
    await trouble
    statuses = [(await house.ended(message, 60)).status for message in messages]
    assert set(statuses) <= {"complete", "failed"}
    assert statuses.count("complete") >= 190
    await house.nothing_is_held()


async def test_a_replica_that_moves_is_asked_at_its_new_address(house: House) -> None:
    before = await house.engine()
    runner = await house.runner()
    await house.ended(await house.ask(5))
    after = await house.engine()
    await run_db(lambda: Replica.objects.filter(url=after.url).delete())
    await run_db(lambda: Replica.objects.update(url=after.url))
    await runner._refresh()
    await wait_until(lambda: dispatcher(runner).pool.ready)
    await house.ended(await house.ask(5, prompt=LONG))
    assert (len(before.calls), len(after.calls)) == (1, 1)
