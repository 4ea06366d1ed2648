"""Redis loses everything while replies wait or stream."""

import pytest

from chatsite.database import run_db
from chatsite.redis import async_client
from inference import sweep
from inference.models import Partial
from tests.inference.runner.conftest import House, Reader
from tests.waiting import wait_until


async def test_redis_emptied_mid_reply_and_the_reply_goes_on(house: House) -> None:
    engine = await house.engine(tokens_per_second=60)
    await house.runner()
    message = await house.ask(90)
    reader = Reader(message.request_id)
    await house.emitted(message, 10)
    await async_client().flushdb()
    done = await house.ended(message)
    text = house.expected(90)[1]
    assert (done.status, done.content) == ("complete", text)
    assert await reader.done() == text
    assert len(engine.calls) == 1
    [entry] = await house.ledger(message)
    assert entry.output == 90
    await house.nothing_is_held()


async def test_redis_emptied_while_it_waits_and_it_is_entered_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", sweep.timedelta(seconds=0.2))
    message = await house.ask(10)
    await async_client().flushdb()
    await house.engine()
    await house.runner()
    done = await house.ended(message)
    assert done.status == "complete"  # its prompt was made again from the conversation
    await house.nothing_is_held()


async def test_redis_emptied_and_the_runner_dead_the_reply_goes_on_elsewhere(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await house.engine(tokens_per_second=60)
    runner = await house.runner()
    message = await house.ask(60)
    await house.emitted(message, 20)
    await wait_until(lambda: run_db(Partial.objects.exists))
    await house.crash(runner)
    await async_client().flushdb()
    await house.runner()
    done = await house.ended(message, 15)
    assert done.status == "complete"
    assert len(done.token_ids) // 4 == 60
    assert len(engine.calls) == 2
    assert len(engine.calls[1].prompt_ids) > 10  # what PostgreSQL had was not generated again
    await house.nothing_is_held()
