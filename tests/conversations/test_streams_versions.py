"""Stop, continue, regenerate and repeats, by the raw routes."""

from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from conversations.models import Message
from inference.models import Request
from tests.conversations.callers import Caller, ended, events_of, msg, text_of, uuid_of
from tests.conversations.conftest import House
from tests.conversations.streamed import close_log, get, path, running, running_reply, started
from tests.waiting import wait_until

__all__ = ["path"]


async def test_s13_s14_stop_keeps_what_was_shown(house: House, caller: Caller, path: str) -> None:
    engine = await running(house, tokens_per_second=50)
    async with caller.open("POST", path, {"content": "Hello", "max_tokens": 500}) as sent:
        await wait_until(lambda: len(events_of(sent.received.body)) > 8)
        message_id = sent.received.headers["x-message-id"]
        stopped = await caller.call("POST", f"/v1/messages/{message_id}/stop")
        events = events_of((await sent.answer()).body)
    assert stopped.status == 200
    message = stopped.json()
    assert (message["status"], message["finish_reason"]) == ("stopped", "cancelled")
    assert text_of(events) == message["content"] != ""
    assert events[-1].data["status"] == "stopped"
    await wait_until(lambda: engine.running == 0, within=1)
    reply = await get(message_id)
    [entry] = await house.ledger(reply)
    assert (entry.output, entry.outcome) == (reply.tokens, "cancelled")
    for _ in range(2):
        again = await caller.call("POST", f"/v1/messages/{message_id}/stop", idempotency_key="s")
        assert (again.status, again.json()) == (200, message)


async def test_s11_stop_before_the_first_token(house: House, caller: Caller, path: str) -> None:
    await running(house, first_token_seconds=30)
    message_id = await started(caller, path)
    await wait_until(lambda: house.engines[0].running == 1)
    stopped = await caller.call("POST", f"/v1/messages/{message_id}/stop")
    assert (stopped.status, stopped.json()["status"], stopped.json()["content"]) == (200, "stopped", "")
    await wait_until(lambda: house.engines[0].running == 0, within=1)


async def test_a_stop_that_takes_long_is_202(caller: Caller, path: str, settings: Any) -> None:
    settings.STOP_WAIT_SECONDS = 0.2
    message_id = await started(caller, path)
    reply = await get(message_id)
    # Claimed by a runner that does not answer.
    await run_db(Message.objects.filter(id=reply.id).update, status="streaming")
    await run_db(Request.objects.filter(id=reply.request_id).update, status="running", attempt=1, claim=new_id())
    await async_client().flushdb()
    stopped = await caller.call("POST", f"/v1/messages/{message_id}/stop")
    assert (stopped.status, stopped.json()["status"]) == (202, "streaming")
    assert (await run_db(Request.objects.get, id=reply.request_id)).cancel_requested_at is not None


@pytest.mark.parametrize("emoji", [0.0, 0.5])
async def test_s15_prefix_and_continuation_are_exactly_one_text(
    house: House, caller: Caller, path: str, emoji: float
) -> None:
    """Whole and cut, the engine gives the same tokens; so must the texts be the same."""
    engine = await running(house, tokens_per_second=60, emoji=emoji)
    async with caller.open("POST", path, {"content": "Hello", "max_tokens": 500}) as sent:
        await wait_until(lambda: len(events_of(sent.received.body)) > 6)
        message_id = sent.received.headers["x-message-id"]
        stopped = await caller.call("POST", f"/v1/messages/{message_id}/stop")
    kept = stopped.json()["content"]
    going_on = await caller.call("POST", f"/v1/messages/{message_id}/continue", {"max_tokens": 25})
    events = events_of(going_on.body)
    reply = await get(message_id)
    prompt = engine.calls[0].prompt_ids
    ids, text = house.expected(reply.tokens, prompt, emoji)
    assert list(memoryview(bytes(reply.token_ids)).cast("I")) == ids
    assert reply.content == text.rstrip("\ufffd")  # a half character at the cut is not shown
    assert kept + text_of(events) == reply.content
    assert events[0].type == "started"
    assert events[-1].data["usage"]["output"] == reply.tokens
    assert events[-1].data["usage"]["input"] == len(prompt)
    assert going_on.headers["x-message-id"] == message_id


async def test_s1_a_cursor_from_before_a_continuation_leads_into_it(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=400)
    first = await caller.call("POST", path, {"content": "Hello", "max_tokens": 10})
    message_id = first.headers["x-message-id"]
    await caller.call("POST", f"/v1/messages/{message_id}/continue", {"max_tokens": 10})
    content = (await get(message_id)).content
    events = events_of(first.body)
    for position, event in enumerate(events):
        rest = await caller.call("GET", f"/v1/messages/{message_id}/stream", last_event_id=str(event.id))
        assert text_of(events[: position + 1]) + text_of(events_of(rest.body)) == content


async def test_a_whole_reply_cannot_be_continued(caller: Caller, path: str) -> None:
    message_id = await started(caller, path)
    await ended(uuid_of(message_id))
    answer = await caller.call("POST", f"/v1/messages/{message_id}/continue")
    assert (answer.status, answer.json()["code"], answer.headers["x-should-retry"]) == (409, "conflict", "false")


async def test_s16_regenerate_streams_a_sibling(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=400)
    first = await caller.call("POST", path, {"content": "Hello", "max_tokens": 5})
    before = await get(first.headers["x-message-id"])
    second = await caller.call("POST", f"/v1/messages/{msg(before.id)}/regenerate", {"max_tokens": 6, "stream": False})
    message = second.json()
    assert message["id"] != msg(before.id)
    assert message["parent"] == msg(before.parent_id)  # type: ignore[arg-type]
    assert (await get(msg(before.id))).content == before.content


async def test_a_second_send_while_a_reply_runs_is_409(caller: Caller, path: str) -> None:
    await started(caller, path)
    answer = await caller.call("POST", path, {"content": "Again"})
    assert (answer.status, answer.json()["code"], answer.headers["x-should-retry"]) == (409, "reply_running", "false")
    assert "x-ratelimit-remaining-tokens" in answer.headers
    assert await run_db(Message.objects.count) == 2


# Idempotency


async def test_a_repeat_attaches_to_the_same_message(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=100)
    body = {"content": "Hello", "max_tokens": 30}
    async with caller.open("POST", path, body, idempotency_key="one") as sent:
        await wait_until(lambda: sent.received.status)
        again = await caller.call("POST", path, body, idempotency_key="one")
        first = await sent.answer()
    assert again.headers["x-message-id"] == first.headers["x-message-id"]
    assert text_of(events_of(again.body)) == text_of(events_of(first.body))
    later = await caller.call("POST", path, body, idempotency_key="one")
    assert text_of(events_of(later.body)) == text_of(events_of(first.body))
    assert await run_db(Request.objects.count) == 1
    other = await caller.call("POST", path, {"content": "Other"}, idempotency_key="one")
    assert (other.status, other.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_repeated_continue_goes_on_at_the_same_place(house: House, caller: Caller, path: str) -> None:
    await running(house, tokens_per_second=400)
    first = await caller.call("POST", path, {"content": "Hello", "max_tokens": 10})
    address = f"/v1/messages/{first.headers['x-message-id']}/continue"
    one = await caller.call("POST", address, {"max_tokens": 5}, idempotency_key="c")
    two = await caller.call("POST", address, {"max_tokens": 5}, idempotency_key="c")
    assert text_of(events_of(one.body)) == text_of(events_of(two.body)) != ""
    assert await run_db(Request.objects.count) == 2


async def test_a_refused_call_may_be_repeated_with_its_key(caller: Caller, path: str, conversation: Any) -> None:
    message_id = await started(caller, path)
    body = {"content": "Again", "stream": False}
    refused = await caller.call("POST", path, body, idempotency_key="k")
    assert refused.status == 409
    await ended(uuid_of(message_id))
    async with caller.open("POST", path, body, idempotency_key="k") as sent:
        reply = await running_reply()
        await ended(reply.id)
        await close_log(reply)
        assert (await sent.answer()).status == 200
