"""The web process that accepted a call may be busy for seconds before it hands on the prompt, which only it has."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from chatsite.redis import async_client
from inference import services, sweep
from inference.redis.scheduler import Scheduler
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, over, rows
from tests.inference.runner.conftest import House
from tests.waiting import wait_until

Chat = Callable[..., dict[str, Any]]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """What was accepted is handed on once this is set. Meanwhile sweeps wait for nobody."""
    submit, handed_on = services.submit_all, asyncio.Event()

    async def later(opened: Any) -> None:
        await handed_on.wait()
        await submit(opened)

    monkeypatch.setattr(services, "submit_all", later)
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", timedelta())
    return handed_on


async def _known() -> list[bool]:
    return await Scheduler(async_client(), "smollm2-135m").knows([row.id for row in await rows()])


async def test_it_is_not_entered_without_its_prompt(
    house: House, caller: Caller, chat: Chat, busy: asyncio.Event
) -> None:
    await house.engine()
    async with caller.open("POST", PATH, chat(max_tokens=5)) as call:
        await wait_until(rows)
        await sweep._compare()
        assert await _known() == [False]
        busy.set()
        await house.runner()
        answer = await call.answer()
    assert answer.status == 200, answer.body
    await over(house)


async def test_a_prompt_that_does_not_come_was_lost(
    house: House, caller: Caller, chat: Chat, busy: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "PROMPT_AFTER", timedelta())
    await house.engine()
    async with caller.open("POST", PATH, chat(max_tokens=5)):
        await wait_until(rows)
        await sweep._compare()
        assert await _known() == [True]
        await house.runner()

        async def failed() -> bool:
            return [row.status for row in await rows()] == ["failed"]

        await wait_until(failed)
        busy.set()
    await over(house)
