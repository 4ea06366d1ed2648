"""Stop, at every stage and whoever has lost the note of it."""

import asyncio

import pytest
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client
from inference import services, sweep
from inference.models import Request, RequestStatus
from inference.redis.scheduler import Scheduler
from tests.inference.runner.conftest import House, Reader
from tests.waiting import wait_until


async def test_s10_s14_stop_frees_the_engine_and_keeps_the_text(house: House) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(2000)
    reader = Reader(message.request_id)
    await house.emitted(message, 10)
    await services.cancel(message.request_id)
    await wait_until(lambda: engine.running == 0, 1.0)
    done = await house.ended(message, 2.0)
    count = len(done.token_ids) // 4
    assert (done.status, done.finish_reason) == ("stopped", "cancelled")
    assert done.content == house.expected(count)[1] == await reader.done()  # s14: exactly what was shown
    [entry] = await house.ledger(message)
    assert (entry.output, entry.outcome) == (count, "cancelled")
    await services.cancel(message.request_id)  # again: nothing
    assert len(await house.ledger(message)) == 1
    await house.nothing_is_held()


async def test_s11_stop_before_the_first_token(house: House) -> None:
    engine = await house.engine(first_token_seconds=30)
    await house.runner()
    message = await house.ask(20)
    await wait_until(lambda: engine.running == 1)
    await services.cancel(message.request_id)
    await wait_until(lambda: engine.running == 0, 1.0)
    done = await house.ended(message, 2.0)
    assert (done.status, done.content) == ("stopped", "")
    await house.nothing_is_held()


async def test_s13_stop_while_it_waits_without_any_runner(house: House) -> None:
    message = await house.ask(20)
    await services.cancel(message.request_id)
    done = await house.ended(message, 1.0)
    assert done.status == "stopped"
    assert (await house.request(message)).status == RequestStatus.CANCELLED
    await house.nothing_is_held()


async def test_s12_stop_during_a_retry(house: House) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(500)
    await house.emitted(message, 5)
    engine.kill()
    scheduler = Scheduler(async_client(), house.model.name)

    async def waits() -> bool:
        return await scheduler.place(str(message.request_id)) is not None

    await wait_until(waits)
    await services.cancel(message.request_id)
    done = await house.ended(message, 2.0)
    assert done.status == "stopped"
    assert done.content == house.expected(len(done.token_ids) // 4)[1]
    await house.nothing_is_held()


@pytest.mark.parametrize("lost", ["redis", "the web process"])
async def test_s12_s14_a_stop_that_reached_only_postgresql_keeps_the_text_through_a_retry(
    house: House, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Stop is noted in the row and nowhere else; then the engine fails, and the next attempt meets the note."""
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", sweep.timedelta(seconds=60))
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(2000)
    reader = Reader(message.request_id)
    await house.emitted(message, 20)
    if lost == "redis":
        await async_client().flushdb()
        await house.emitted(message, 30)
    await run_db(Request.objects.filter(id=message.request_id).update, cancel_requested_at=timezone.now())
    engine.faults.stream, engine.faults.times = "reset", 1
    done = await house.ended(message)
    count = len(done.token_ids) // 4
    assert count >= 20
    assert (done.status, done.content) == ("stopped", house.expected(count)[1])
    assert await reader.done() == done.content
    [entry] = await house.ledger(message)
    assert entry.output == count
    await house.nothing_is_held()


async def test_s14_a_stop_while_a_retry_takes_up_the_text_keeps_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inference.runner.stream import Stream

    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 20)
    entered, original = asyncio.Event(), Stream._recover

    async def slow(stream: Stream) -> None:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()  # cut here by the stop
        await original(stream)

    monkeypatch.setattr(Stream, "_recover", slow)
    engine.faults.stream, engine.faults.times = "reset", 1
    await asyncio.wait_for(entered.wait(), 5)
    await services.cancel(message.request_id)
    done = await house.ended(message, 2.0)
    count = len(done.token_ids) // 4
    assert count >= 20
    assert (done.status, done.content) == ("stopped", house.expected(count)[1])


async def test_s10_s13_stop_right_after_redis_was_emptied(house: House) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 10)
    await async_client().flushdb()
    await services.cancel(message.request_id)
    await wait_until(lambda: engine.running == 0, 1.0)
    done = await house.ended(message, 3.0)
    assert done.status == "stopped"
    await house.nothing_is_held()


async def test_a_stop_whose_web_process_died_is_told_by_the_sweep(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", sweep.timedelta(seconds=0.2))
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 10)
    await run_db(Request.objects.filter(id=message.request_id).update, cancel_requested_at=timezone.now())
    await wait_until(lambda: engine.running == 0, 4.0)
    assert (await house.ended(message)).status == "stopped"


async def test_stop_after_redis_lost_the_flag(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", sweep.timedelta(seconds=0.2))
    message = await house.ask(20)
    await async_client().flushdb()
    await run_db(Request.objects.filter(id=message.request_id).update, cancel_requested_at=message.created_at)
    await wait_until(lambda: _swept(house, message), 5)
    assert (await house.reload(message)).status == "stopped"


async def _swept(house: House, message: object) -> bool:
    await sweep.sweep()
    return (await house.request(message)).status == RequestStatus.CANCELLED  # type: ignore[arg-type]
