"""Calls with an Idempotency-Key: repeated, followed by several, and begun anew when nothing came of them."""

import asyncio
import json
from uuid import UUID

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id, public_id
from chatsite.redis import async_client
from inference import presence, readers, services
from inference.completions import ending, routes
from inference.models import Request
from inference.presence import Hold, Presence
from inference.redis import keys
from inference.sweep import sweep
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, entries, over, rows, text_of
from tests.inference.runner.conftest import House
from tests.tuning import atune
from tests.waiting import wait_until


async def running(house: House, tokens: int = 5) -> UUID:
    """The newest call once it has said something."""
    engine = house.engines[0]
    await wait_until(lambda: engine.running == 1 and len(engine.calls[-1].token_ids) > tokens, 5)
    return (await rows())[-1].id


async def test_a_cancelled_call_is_told_as_cancelled(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=50)
    await house.runner()
    for stream in (True, False):
        async with caller.open("POST", PATH, chat(max_tokens=3000, stream=stream)) as call:
            if stream:
                await wait_until(lambda: len(call.received.chunks) > 3, 5)
            await services.cancel(await running(house))
            answer = await call.answer()
        told = json.loads(answer.body.decode().strip().split("\n\n")[-1].removeprefix("data: "))
        assert told["error"] == {
            "message": "This call was cancelled before its answer was complete. Send it again.",
            "type": "server_error",
            "param": None,
            "code": "call_cancelled",
        }
        assert b'finish_reason":"' not in answer.body
        assert b"[DONE]" not in answer.body
        assert answer.status == (200 if stream else 503)
        if not stream:
            assert int(answer.headers["retry-after"]) > 0
            assert "x-should-retry" not in answer.headers
        await over(house)


@pytest.mark.parametrize("fault", ["status", "stream"])
async def test_a_failed_call_is_begun_anew_with_the_same_key(
    house: House, caller: Caller, chat: Chat, fault: str
) -> None:
    await atune(lease={"max_attempts": 2, "requeued_wait_seconds": 1.0})
    engine = await house.engine()
    await house.runner()
    key = str(new_id())
    if fault == "status":
        engine.faults.status = 400
    else:
        engine.faults.stream, engine.faults.after, engine.faults.times = "error", 5, 0
    first = await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)
    assert first.status == (400 if fault == "status" else 503), first.body
    engine.faults.status, engine.faults.stream = 0, ""
    again = await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)
    assert again.status == 200, again.body
    third = await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)
    assert third.json() == again.json()  # the same id and time as well
    assert [row.status for row in await rows()] == ["failed", "succeeded"]
    await over(house)


async def test_a_repeat_is_told_the_id_by_which_its_request_is_found(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    key = str(new_id())
    first = (await caller.call("POST", PATH, chat(max_tokens=5, n=2), idempotency_key=key)).json()
    again = (await caller.call("POST", PATH, chat(max_tokens=5, n=2), idempotency_key=key)).json()
    assert (again["id"], again["created"]) == (first["id"], first["created"])
    found = (await caller.call("GET", f"/v1/requests/{first['id']}")).json()
    assert found["id"] == found["decision"]["answers"][0]
    assert {public_id("req", row.id) for row in await rows()} == set(found["decision"]["answers"])
    await over(house)


async def test_a_failed_call_whose_log_is_gone_is_begun_anew(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine()
    await house.runner()
    key = str(new_id())
    engine.faults.status = 400
    assert (await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)).status == 400
    await over(house)
    engine.faults.status = 0
    await async_client().flushdb()
    assert (await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)).status == 200


async def test_of_many_repeats_at_once_one_begins_anew(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    key = str(new_id())
    engine.faults.status = 400
    assert (await caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key)).status == 400
    engine.faults.status = 0
    repeats = [caller.call("POST", PATH, chat(max_tokens=20), idempotency_key=key) for _ in range(8)]
    answers = await asyncio.gather(*repeats)
    assert {answer.status for answer in answers} <= {200, 409}
    told = [answer.json() for answer in answers if answer.status == 200]
    assert told
    assert all(each == told[0] for each in told)
    assert [row.status for row in await rows()] == ["failed", "succeeded"]


async def test_who_hung_up_alone_begins_anew(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    key = str(new_id())
    async with caller.open("POST", PATH, chat(max_tokens=60), idempotency_key=key):
        await running(house)
    await wait_until(lambda: engine.running == 0, 2)
    answer = await caller.call("POST", PATH, chat(max_tokens=60), idempotency_key=key)
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["usage"]["completion_tokens"] == 60
    assert [row.status for row in await rows()] == ["cancelled", "succeeded"]
    await over(house)


@pytest.mark.parametrize("first_leaves", [True, False])
async def test_the_last_reader_s_going_cancels(house: House, caller: Caller, chat: Chat, first_leaves: bool) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    key, body = str(new_id()), chat(max_tokens=100, stream=True)
    async with caller.open("POST", PATH, body, idempotency_key=key) as first:
        await running(house)
        async with caller.open("POST", PATH, body, idempotency_key=key) as second:
            await wait_until(lambda: len(second.received.chunks) > 3, 5)
            leaver, stayer = (first, second) if first_leaves else (second, first)
            leaver.hang_up()
            await leaver.task
            chunks = chunks_of(await stayer.answer())
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len(text_of(chunks)) > 100
    assert [row.status for row in await rows()] == ["succeeded"]
    long = chat(max_tokens=3000, stream=True)
    async with caller.open("POST", PATH, long, idempotency_key="both"):
        await running(house)
        async with caller.open("POST", PATH, long, idempotency_key="both") as second:
            await wait_until(lambda: len(second.received.chunks) > 3, 5)
    await wait_until(lambda: engine.running == 0, 2)
    await over(house)
    assert [row.status for row in await rows()] == ["succeeded", "cancelled"]


async def test_a_call_goes_on_for_a_reader_of_another_process(
    house: House, caller: Caller, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "GONE_AFTER_SECONDS", 0.5)
    engine = await house.engine(tokens_per_second=100)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=300), idempotency_key="one") as stayer:
        request_id = await running(house)
        killed = new_id()  # it came later, and took the call over
        assert await readers.join([request_id], readers.new_reader(killed))
        await run_db(lambda: Request.objects.filter(id=request_id).update(caller_id=killed))
        for _ in range(15):
            await sweep()
            await asyncio.sleep(0.1)
        [row] = await rows()
        assert row.caller_id == routes.presence.id
        assert (await stayer.answer()).json()["usage"]["completion_tokens"] == 300
    assert engine.running == 0


async def test_readers_are_known_until_the_last_has_left(house: House) -> None:
    requests, here = [new_id(), new_id()], Presence()
    hold = here.hold()
    await wait_until(lambda: async_client().exists(keys.presence(here.id)), 2)
    gone = new_id()
    one, two = readers.new_reader(here.id), readers.new_reader(gone)
    assert await readers.adopters(requests) == {}
    assert await readers.join(requests, two, new=True)
    assert await readers.adopters(requests) == {}
    assert await readers.join(requests[:1], one)
    assert await readers.adopters(requests) == {requests[0]: here.id}
    assert await readers.leave(requests, two) == {requests[0]: [here.id], requests[1]: []}
    assert not await readers.join(requests, two)
    assert await readers.leave(requests, one) == {requests[0]: [gone], requests[1]: []}
    assert await async_client().ttl(keys.readers(requests[0])) > 0
    assert hold is not None


async def test_who_reads_is_known_again_after_redis_lost_it(
    house: House, caller: Caller, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(readers, "LOST_SECONDS", 0.5)
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    key, body = str(new_id()), chat(max_tokens=3000, stream=True)
    async with caller.open("POST", PATH, body, idempotency_key=key) as first:
        request_id = await running(house)
        async with caller.open("POST", PATH, body, idempotency_key=key) as second:
            await wait_until(lambda: len(second.received.chunks) > 3, 5)
            await async_client().delete(keys.readers(request_id))
            first.hang_up()
            await first.task
            await wait_until(lambda: not ending.going, 3)
            assert await async_client().scard(keys.readers(request_id)) == 1
            assert [(row.status, row.cancel_requested_at) for row in await rows()] == [("running", None)]
            assert engine.running == 1
    await wait_until(lambda: engine.running == 0, 3)
    await over(house)
    assert [row.status for row in await rows()] == ["cancelled"]


async def test_a_set_that_is_lost_is_closed_only_after_others_had_time_to_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "LOST_SECONDS", 0.3)
    [request], here = [new_id()], new_id()
    one, two = readers.new_reader(here), readers.new_reader(here)
    assert await readers.join([request], one, new=True) and await readers.join([request], two)
    await async_client().delete(keys.readers(request))
    leaving = asyncio.create_task(readers.leave([request], one))
    await asyncio.sleep(0.1)
    assert await readers.join([request], two)
    assert await leaving == {request: [here]}
    await async_client().delete(keys.readers(request))
    assert await readers.join([request], one)
    leaving = asyncio.create_task(readers.leave([request], one))  # back before the other is
    await asyncio.sleep(0.1)
    assert await readers.join([request], two)
    assert await leaving == {request: [here]}
    assert await readers.leave([request], two) == {request: []}
    assert not await readers.join([request], one)


async def test_a_reader_whose_call_nobody_holds_is_entered_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "AGAIN_SECONDS", 0.05)
    request, hold = new_id(), Hold()
    stay = readers.Stay([request], readers.new_reader(new_id()), hold)
    await wait_until(lambda: async_client().exists(keys.readers(request)), 2)
    del hold
    await asyncio.wait_for(stay._task, 2)


# What is charged for an answer that failed


@pytest.mark.parametrize("stream", [True, False])
async def test_a_part_is_charged_where_its_caller_has_read_it(
    house: House, caller: Caller, chat: Chat, stream: bool
) -> None:
    await atune(lease={"max_attempts": 2, "requeued_wait_seconds": 1.0})
    engine = await house.engine()
    await house.runner()
    engine.faults.stream, engine.faults.after, engine.faults.times = "error", 5, 0
    answer = await caller.call("POST", PATH, chat(max_tokens=30, stream=stream))
    assert b'"engine_unavailable"' in answer.body
    await over(house)
    [row] = await rows()
    [entry] = await entries()
    assert (row.status, entry.outcome) == ("failed", "failed")
    if stream:
        assert entry.output == row.output_tokens > 0
        assert entry.input == row.prompt_tokens
    else:
        assert (entry.input, entry.cached, entry.output, entry.cost) == (0, 0, 0, 0)


async def test_a_failed_choice_ends_the_others_at_once(house: House, caller: Caller, chat: Chat) -> None:
    await atune(lease={"max_attempts": 1, "requeued_wait_seconds": 1.0})
    engine = await house.engine(tokens_per_second=50)
    await house.runner()

    async def fail_one() -> None:
        await wait_until(lambda: engine.running == 3 and all(len(each.token_ids) > 5 for each in engine.calls), 5)
        engine.faults.stream, engine.faults.after, engine.faults.times = "error", 0, 1

    failing = asyncio.create_task(fail_one())
    answer = await caller.call("POST", PATH, chat(max_tokens=1500, n=3))
    await failing
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "engine_unavailable"
    await over(house)
    found = await rows()
    assert sorted(row.status for row in found) == ["cancelled", "cancelled", "failed"]
    billed = {each.request_id: each for each in await entries()}
    for row in found:
        assert (billed[row.id].output == 0) == (row.status == "failed")


@pytest.mark.parametrize("kept", [0, 1])
async def test_an_answer_whose_text_redis_lost_is_told_as_expired(
    house: House, caller: Caller, chat: Chat, kept: int
) -> None:
    """Also where only the end of its log is left."""
    await house.engine()
    await house.runner()
    key = str(new_id())
    first = await caller.call("POST", PATH, chat(max_tokens=30), idempotency_key=key)
    again = await caller.call("POST", PATH, chat(max_tokens=30), idempotency_key=key)
    assert (first.status, again.body) == (200, first.body)
    [row] = await rows()
    await async_client().xtrim(keys.out(row.id), maxlen=kept, approximate=False)
    answer = await caller.call("POST", PATH, chat(max_tokens=30), idempotency_key=key)
    assert (answer.status, answer.json()["error"]["code"]) == (409, "idempotency_expired")
    assert len(await rows()) == 1
