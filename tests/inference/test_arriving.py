"""Who is let in and not in the queue yet."""

import asyncio
import time

import pytest

from inference import arriving
from inference.arriving import Arriving


@pytest.fixture
def them() -> Arriving:
    return Arriving()


async def _let_in(them: Arriving, until: asyncio.Event) -> None:
    them.add("free", "acme")
    await until.wait()


async def test_who_is_let_in_counts_until_its_acceptance_is_over_and_redis_was_asked_after_it(them: Arriving) -> None:
    over = asyncio.Event()
    accepting = asyncio.create_task(_let_in(them, over))
    await asyncio.sleep(0)
    them.counted(time.monotonic())
    assert (them.of_lane["free"], them.of_tenant["free", "acme"], them.of_lane["paid"]) == (1, 1, 0)
    asked_before = time.monotonic()
    over.set()
    await accepting
    await asyncio.sleep(0)  # callbacks of a task come after it
    them.counted(asked_before)
    assert them.of_lane["free"] == 1
    them.counted(time.monotonic())
    assert (them.of_lane["free"], them.of_tenant["free", "acme"]) == (0, 0)


async def test_an_acceptance_that_fails_is_over_too(them: Arriving) -> None:
    async def refused() -> None:
        them.add("free", "acme")
        raise ValueError

    with pytest.raises(ValueError):
        await asyncio.create_task(refused())
    await asyncio.sleep(0)
    them.counted(time.monotonic())
    assert them.of_lane["free"] == 0


async def test_who_let_it_in_may_go_on_for_ever(them: Arriving, monkeypatch: pytest.MonkeyPatch) -> None:
    them.add("free", "acme")
    them.counted(time.monotonic())
    assert them.of_lane["free"] == 1
    monkeypatch.setattr(arriving, "MOST_SECONDS", 0.0)
    them.counted(time.monotonic())
    assert them.of_lane["free"] == 0
