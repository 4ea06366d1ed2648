"""Callers that go away while their call is being accepted, and before anything of it was sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from django.db import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from chatsite import raw
from inference import readers
from inference.completions import acceptance, ending, routes
from inference.completions.wire import WAITING
from tests.asgi_client import Exchange
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, entries, over, rows, text_of
from tests.inference.runner.conftest import House
from tests.waiting import wait_until


@dataclass
class Gate:
    """A step that waits until it is opened."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()


@contextmanager
def held(module: Any, name: str) -> Iterator[Gate]:
    """Each call of that function waits at a gate first."""
    gate, function = Gate(), getattr(module, name)

    async def wait_and_call(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await function(*args, **kwargs)

    with patch.object(module, name, wait_and_call):
        yield gate


@asynccontextmanager
async def left_at(gate: Gate, caller: Caller, body: dict[str, Any], **headers: str) -> AsyncIterator[Exchange]:
    """A call whose task is cancelled at that gate, which opens afterwards."""
    async with caller.open("POST", PATH, body, **headers) as call:
        await asyncio.wait_for(gate.reached.wait(), 5)
        yield call
    assert call.task.cancelled()
    assert await rows() == []
    gate.opened.set()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("key", [{}, {"idempotency_key": "one"}], ids=["plain", "keyed"])
async def test_a_call_that_is_accepted_for_nobody_is_cancelled(
    house: House, caller: Caller, chat: Chat, stream: bool, key: dict[str, str]
) -> None:
    engine = await house.engine(first_token_seconds=2)
    await house.runner()
    others = routes.presence.hold()  # other calls of the process go on, so that it counts as there
    with held(acceptance.keeping, "keeps") as gate:
        async with left_at(gate, caller, chat(max_tokens=3000, n=2, stream=stream), **key):
            pass
        await wait_until(lambda: not ending.going, 5)
    await over(house)
    assert [row.status for row in await rows()] == ["cancelled", "cancelled"]
    assert engine.running == 0
    billed = await entries()
    assert [(each.input, each.output, each.cost) for each in billed] == [(0, 0, 0)] * 2
    if key:  # its repeat is a first call
        answer = await caller.call("POST", PATH, chat(max_tokens=2), **key)
        assert answer.status == 200, answer.body
    del others


async def test_one_that_is_refused_for_nobody_leaves_nothing(house: House, caller: Caller, chat: Chat) -> None:
    with held(acceptance.selectors, "arequire_model") as gate:
        async with left_at(gate, caller, chat(max_tokens=3000, model="none")):
            pass
        await wait_until(lambda: not ending.going, 5)
    assert await rows() == []
    await house.nothing_is_held()


async def test_a_call_that_outlives_callers_goes_on(house: House, caller: Caller, chat: Chat, settings: Any) -> None:
    settings.COMPLETIONS_OUTLIVE_CALLERS = True
    await house.engine()
    await house.runner()
    with held(acceptance.keeping, "keeps") as gate:
        async with left_at(gate, caller, chat(max_tokens=10)):
            pass
        await wait_until(lambda: not ending.going, 5)
    await over(house)
    assert [(row.status, row.output_tokens) for row in await rows()] == [("succeeded", 10)]


async def test_a_task_that_is_cancelled_before_the_first_word_cancels_its_call(
    house: House, caller: Caller, chat: Chat
) -> None:
    """By the server, which does not say then that the caller has gone."""
    engine = await house.engine(first_token_seconds=30)
    await house.runner()
    others = routes.presence.hold()
    async with caller.open("POST", PATH, chat(max_tokens=50, stream=True)) as call:
        await wait_until(lambda: engine.running == 1, 5)
        call.task.cancel()
        await asyncio.gather(call.task, return_exceptions=True)
        await over(house)
    assert [row.status for row in await rows()] == ["cancelled"]
    del others


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_leaves_before_the_first_word_is_no_fault_of_ours(
    house: House, caller: Caller, chat: Chat, stream: bool
) -> None:
    """In the log as 499: a 5xx would be an alarm."""
    engine = await house.engine(first_token_seconds=30)
    await house.runner()
    others = routes.presence.hold()
    with patch.object(raw.logs, "log_access") as logged:
        async with caller.open("POST", PATH, chat(max_tokens=50, stream=stream)) as call:
            await wait_until(lambda: engine.running == 1, 5)
            call.hang_up()
            await asyncio.wait_for(asyncio.gather(call.task, return_exceptions=True), 5)
    assert [each.args[2] for each in logged.call_args_list] == [499]
    await over(house)
    del others


async def test_a_stream_that_waits_sends_a_comment_and_its_first_chunk_with_the_text(
    house: House, caller: Caller, chat: Chat
) -> None:
    engine = await house.engine(first_token_seconds=2)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=5, stream=True)) as call:
        await wait_until(lambda: bool(call.received.body), 5)
        assert engine.running == 1
        assert call.received.body == WAITING
        answer = await call.answer()
    chunks = chunks_of(answer)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(chunks)


async def test_where_a_reader_cannot_be_entered_the_call_is_cancelled(house: House, caller: Caller, chat: Chat) -> None:
    """Its caller is told 503, and a repeat is a first call."""
    await house.engine(tokens_per_second=20)
    await house.runner()
    others = routes.presence.hold()
    with patch.object(readers, "join", side_effect=RedisConnectionError("away")):
        answer = await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key="one")
    assert (answer.status, answer.json()["error"]["code"]) == (503, "unavailable")
    await over(house)
    again = await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key="one")
    assert again.json()["usage"]["completion_tokens"] == 20
    assert [row.status for row in await rows()] == ["cancelled", "succeeded"]
    del others


async def test_a_call_is_cancelled_as_soon_as_postgresql_answers_again(
    house: House, caller: Caller, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "STEP_SECONDS", 0.05)
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    others = routes.presence.hold()
    cancelling = ending.services.cancel
    with patch.object(ending.services, "cancel", side_effect=OperationalError("away")) as cancel:
        async with caller.open("POST", PATH, chat(max_tokens=3000, stream=True)):
            await wait_until(lambda: engine.running == 1, 5)
        await wait_until(lambda: cancel.call_count > 2, 5)
        assert engine.running == 1
        cancel.side_effect = cancelling
        await over(house)
    assert [row.status for row in await rows()] == ["cancelled"]
    del others
