"""Replies that are taken up again: whatever the reader had, the rest comes once."""

import asyncio
from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from conversations.models import Message
from inference.models import Model
from tests.conftest import Person
from tests.conversations.callers import Caller, events_of, msg, text_of
from tests.conversations.conftest import House
from tests.conversations.streamed import get, in_state, path, running, started
from tests.waiting import wait_until

__all__ = ["path"]


async def test_s1_resume_from_every_event_gives_the_rest_exactly(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=100, emoji=0.2)
    message_id = ""
    async with caller.open("POST", path, {"content": "Hello", "max_tokens": 60}) as sent:
        await wait_until(lambda: len(events_of(sent.received.body)) > 5)
        message_id = sent.received.headers["x-message-id"]
        seen = events_of(sent.received.body)
        late = [
            asyncio.create_task(caller.call("GET", f"/v1/messages/{message_id}/stream", last_event_id=str(event.id)))
            for event in seen
        ]
        from_start = asyncio.create_task(caller.call("GET", f"/v1/messages/{message_id}/stream"))
        whole = events_of((await sent.answer()).body)
        resumed = [events_of(answer.body) for answer in await asyncio.gather(*late)]
        fresh = events_of((await from_start).body)
    text = (await get(message_id)).content
    assert text_of(whole) == text_of(fresh) == text
    assert [event.type for event in fresh][:1] == ["started"]
    for number, rest in enumerate(resumed):
        assert text_of(seen[: number + 1]) + text_of(rest) == text
        assert rest[-1] == whole[-1]
        assert all(event.type != "started" for event in rest)
    for event in whole[:-1]:  # the same once it has ended
        after = events_of((await caller.call("GET", f"/v1/messages/{message_id}/stream?after={event.id}")).body)
        position = whole.index(event) + 1
        assert text_of(after) == text_of(whole[position:])
        assert [each.type for each in after] in (["token", "done"], ["done"])


async def test_at_the_very_end_there_is_nothing(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=400)
    answer = await caller.call("POST", path, {"content": "Hello", "max_tokens": 5})
    last = events_of(answer.body)[-1]
    stream = f"/v1/messages/{answer.headers['x-message-id']}/stream"
    end = await caller.call("GET", stream, last_event_id=str(last.id))
    assert (end.status, end.body) == (204, b"")
    # A reconnecting EventSource repeats its first address and adds the header: the header counts.
    again = await caller.call("GET", f"{stream}?after={events_of(answer.body)[0].id}", last_event_id=str(last.id))
    assert again.status == 204


async def test_s1_a_finished_message_without_its_log(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=400)
    answer = await caller.call("POST", path, {"content": "Hello", "max_tokens": 30})
    events = events_of(answer.body)
    await async_client().flushdb()
    stream = f"/v1/messages/{answer.headers['x-message-id']}/stream"
    for position, event in enumerate(events[:-1]):
        rest = events_of((await caller.call("GET", stream, last_event_id=str(event.id))).body)
        assert text_of(rest) == text_of(events[position + 1 :])


async def test_s1_a_closed_connection_does_not_end_a_reply(house: House, caller: Caller, path: str) -> None:
    engine = await running(house, tokens_per_second=100)
    message_id = await started(caller, path, max_tokens=40)
    done = await wait_until(lambda: in_state(message_id, "complete"))
    assert done.tokens == 40
    assert engine.aborted == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_closed_connection_ends_a_reply_where_that_is_set(
    house: House, caller: Caller, path: str, settings: Any, stream: bool
) -> None:
    settings.CANCEL_ON_DISCONNECT = True
    engine = await running(house, tokens_per_second=100)
    async with caller.open("POST", path, {"content": "Hello", "max_tokens": 400, "stream": stream}) as sent:
        await wait_until(lambda: engine.running == 1)
        sent.hang_up()
        await sent.answer()
    stopped = await wait_until(lambda: run_db(lambda: Message.objects.filter(status="stopped").first()))
    assert stopped.finish_reason == "cancelled"
    await wait_until(lambda: engine.running == 0, within=1)


async def test_s9_a_long_answer_keeps_its_head_for_a_late_reader(house: House, caller: Caller, path: str) -> None:
    """Nothing of the log is dropped while the reply runs, however long it is."""
    await running(house, tokens_per_second=0)
    message_id = await started(caller, path, max_tokens=3000)
    answer = await caller.call("GET", f"/v1/messages/{message_id}/stream")
    reply = await get(message_id)
    assert reply.tokens == 3000
    assert text_of(events_of(answer.body)) == reply.content


async def test_s6_the_bytes_are_linear_in_the_text(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=1500)
    sizes = []
    for tokens in (100, 400):
        body = (await caller.call("POST", path, {"content": "Hello", "max_tokens": tokens})).body
        sizes.append(len(body) / tokens)
    assert sizes[1] < sizes[0] * 1.5


async def test_bad_cursors(house: House, caller: Caller, path: str, person: Person, model: Model) -> None:
    await running(house, tokens_per_second=400)
    first = await caller.call("POST", path, {"content": "Hello", "max_tokens": 5})
    second = await caller.call("POST", path, {"content": "Again", "max_tokens": 5})
    stream = f"/v1/messages/{first.headers['x-message-id']}/stream"
    foreign = events_of(second.body)[-1].id
    for text in (foreign, "x", "1.2.3", f"{new_id()}.0.0", f"{new_id()}.0", "é"):
        answer = await caller.call("GET", f"{stream}?after={text}")
        assert (answer.status, answer.json()["code"], answer.json()["param"]) == (400, "invalid_input", "after"), text
        assert answer.headers["content-type"] == "application/problem+json"
    assert (await caller.call("GET", stream, last_event_id=str(foreign))).status == 400


async def test_a_message_of_the_user_has_no_stream(caller: Caller, path: str, person: Person) -> None:
    message_id = await started(caller, path)
    user = (await get(message_id)).parent_id
    answer = await caller.call("GET", f"/v1/messages/{msg(user)}/stream")  # type: ignore[arg-type]
    assert (answer.status, answer.json()["code"]) == (400, "invalid_input")


async def test_a_reply_that_waits_says_so(house: House, caller: Caller, path: str) -> None:
    await house.engine(tokens_per_second=100)  # and no runner
    async with caller.open("POST", path, {"content": "Hello"}) as waiting:
        [event] = await wait_until(lambda: events_of(waiting.received.body))
        assert event.data["type"] == "queued"
        assert event.data["position"] == 1
        assert event.data["messageId"] == waiting.received.headers["x-message-id"]
        assert event.id is None
