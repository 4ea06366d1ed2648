"""An engine or a runner that dies, fails, says nothing or hands over: the reply goes on elsewhere, or ends."""

import asyncio

import pytest

from inference import services, sweep
from inference.models import RequestStatus
from inference.protocol import RetryingEvent
from tests.inference.runner.conftest import PROMPT, House, Reader, token_ids
from tests.tuning import atune, patience
from tests.waiting import wait_until


@pytest.fixture
async def impatient(house: House) -> None:
    """What has no engine any more ends soon."""
    await atune(lanes=patience(1.0), lease={"requeued_wait_seconds": 0.5})


@pytest.mark.parametrize("emoji", [0.0, 0.7])
async def test_s2_a_dead_engine_is_followed_by_another_exactly(house: House, emoji: float) -> None:
    first = await house.engine(tokens_per_second=100, emoji=emoji)
    await house.runner()
    message = await house.ask(60)
    reader = Reader(message.request_id)
    await house.emitted(message, 7)
    second = await house.engine(tokens_per_second=300, emoji=emoji)
    first.kill()
    done = await house.ended(message, 12)
    ids, text = house.expected(60, emoji=emoji)
    assert token_ids(done) == ids
    if emoji:  # the last character may be cut by the length
        text = text[: len(done.content)]
    assert (done.status, done.content) == ("complete", text)
    assert await reader.done() == text
    assert any(isinstance(event, RetryingEvent) for event in reader.events)
    assert second.calls[0].prompt_ids[: len(PROMPT)] == PROMPT
    assert len(second.calls[0].prompt_ids) > len(PROMPT)
    [entry] = await house.ledger(message)
    assert (entry.input, entry.output) == (len(PROMPT), 60)  # s23: the prompt once, each token once
    await house.nothing_is_held()


@pytest.mark.usefixtures("impatient")
async def test_s2_with_no_engine_left_the_message_fails_and_keeps_its_text(house: House) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(500)
    reader = Reader(message.request_id)
    await house.emitted(message, 10)
    engine.kill()
    done = await house.ended(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    count = len(done.token_ids) // 4
    assert count >= 10
    assert done.content == house.expected(count)[1] == await reader.done()
    [entry] = await house.ledger(message)
    assert entry.output == count
    await house.nothing_is_held()


async def test_s2_a_dead_runner_is_followed_by_another_exactly(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    runner = await house.runner()
    messages = [await house.ask(100, prompt=[*PROMPT, n]) for n in range(5)]
    readers = [Reader(message.request_id) for message in messages]
    for message in messages:
        await house.emitted(message, 5)
    await house.crash(runner)
    await house.runner()
    for number, (message, reader) in enumerate(zip(messages, readers, strict=True)):
        done = await house.ended(message)
        text = house.expected(100, [*PROMPT, number])[1]
        assert (done.status, done.content) == ("complete", text)
        assert await reader.done() == text
        [entry] = await house.ledger(message)
        assert entry.output == 100
    assert len(engine.calls) == 10
    await house.nothing_is_held()


async def test_a_runner_that_ends_hands_over_at_once(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    first = await house.runner()
    second = await house.runner()
    messages = [await house.ask(100, prompt=[*PROMPT, n]) for n in range(6)]
    for message in messages:
        await house.emitted(message, 3)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await house.end(first)
    assert loop.time() - started < 3
    assert first.streams == {}
    for number, message in enumerate(messages):
        done = await house.ended(message)
        assert done.content == house.expected(100, [*PROMPT, number])[1]
    assert len(second.streams) == 0
    assert engine.running == 0
    failures = await asyncio.gather(*(house.request(message) for message in messages))
    assert max(request.attempt for request in failures) <= 2
    await house.nothing_is_held()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ["stop", "engine dies", "runner dies"])
async def test_s19_s23_tokens_after_a_cut_are_the_engines_own_and_billed_once(house: House, end: str) -> None:
    engine = await house.engine(tokens_per_second=100)
    runner = await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 20)
    if end == "stop":
        await services.cancel(message.request_id)
    elif end == "engine dies":
        engine.kill()
    else:
        await house.crash(runner)
        engine.kill()
        await house.runner()
    done = await house.ended(message, 15)
    ids = token_ids(done)
    assert len(ids) >= 20
    assert ids == engine.calls[0].token_ids[: len(ids)]  # each of them came from the engine, none is estimated
    assert (done.usage_input, done.usage_output) == (len(PROMPT), len(ids))
    [entry] = await house.ledger(message)
    assert (entry.input, entry.cached, entry.output) == (len(PROMPT), 0, len(ids))
    assert entry.source == "estimate"  # of what was cached alone: the engine tells it at the end of a whole reply
    await house.nothing_is_held()


@pytest.mark.parametrize("fault", ["stall", "reset", "error", "end", "garbage", "half", "count"])
async def test_a_faulty_engine_is_followed_by_another_exactly(house: House, fault: str) -> None:
    await atune(ejection={"silence_seconds": 0.5})
    for _ in range(2):  # the one that takes over fails once too
        engine = await house.engine(tokens_per_second=200)
        engine.faults.stream, engine.faults.after, engine.faults.times = fault, 10, 1
    await house.runner()
    message = await house.ask(40)
    done = await house.ended(message, 12)
    assert (done.status, done.content) == ("complete", house.expected(40)[1])
    assert (await house.request(message)).attempt >= 2
    [entry] = await house.ledger(message)
    assert entry.output == 40
    await house.nothing_is_held()


async def test_an_engine_without_a_first_token_is_left_for_another(house: House) -> None:
    await atune(ejection={"silence_seconds": 0.5})
    stuck, other = await house.engine(first_token_seconds=30), await house.engine()
    await house.runner()
    message = await house.ask(10)
    done = await house.ended(message)
    assert done.content == house.expected(10)[1]
    request = await house.request(message)
    assert request.attempt == 2 and request.first_token_at is not None
    # Three times what was predicted would be 0.3 ms: at least a second, so that healthy engines are not blamed
    assert (request.first_token_at - request.created_at).total_seconds() >= 1
    assert (len(stuck.calls), len(other.calls)) == (1, 1)


async def test_s29_a_request_that_the_engine_refuses_is_its_own_fault(house: House) -> None:
    engine = await house.engine()
    runner = await house.runner()
    for _ in range(6):
        message = await house.ask(20, extra={"temperature": -1.0})
        done = await house.ended(message)
        assert (done.status, done.error_code) == ("failed", "engine_rejected")
    assert len(engine.calls) == 0
    done = await house.ended(await house.ask(20))
    assert done.status == "complete"
    [pool] = [dispatcher.pool for dispatcher in runner.dispatchers.values()]
    assert len(pool.usable()) == 1


async def test_three_failed_attempts_end_the_request(house: House) -> None:
    engine = await house.engine()
    engine.faults.status = 500
    await house.runner()
    message = await house.ask(20)
    done = await house.ended(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    assert (await house.request(message)).attempt == 3
    [entry] = await house.ledger(message)
    assert (entry.input, entry.output, entry.cost) == (0, 0, 0)
    await house.nothing_is_held()


async def test_a_wait_without_an_engine_ends(house: House) -> None:
    await atune(lanes=patience(0.5))
    message = await house.ask(20)
    await wait_until(lambda: _expired(house, message), 5)
    done = await house.reload(message)
    assert (done.status, done.error_code) == ("failed", "engine_unavailable")
    await house.nothing_is_held()


async def _expired(house: House, message: object) -> bool:
    await sweep.sweep()
    return (await house.request(message)).status == RequestStatus.EXPIRED  # type: ignore[arg-type]


async def test_without_background_work_a_ready_engine_is_not_probed(house: House, settings: object) -> None:
    settings.BACKGROUND = False  # type: ignore[attr-defined]
    engine = await house.engine(tokens_per_second=100)
    runner = await house.runner()
    [pool] = [dispatcher.pool for dispatcher in runner.dispatchers.values()]
    engine.kill()
    await pool.probe()
    assert len(pool.usable()) == 1  # nobody asked
    message = await house.ask(10)
    await wait_until(lambda: not pool.usable())  # the request found out
    await engine.start()
    assert (await house.ended(message)).status == "complete"
