"""The token log: what is appended is read exactly, whatever is repeated, lost or forged."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline
from inference import events
from inference.events import (
    APPENDED,
    FENCED,
    LOST,
    REPEATED,
    append_call,
    close_call,
    entry_id,
    open_call,
    opening_call,
    pack_ids,
    read_log,
    tail,
    unpack_ids,
)
from inference.protocol import Cursor, EndEvent, LogEvent, Result, RetryingEvent, StartedEvent, TokensEvent

RESULT = Result("succeeded", "stop", "", "", input=3, cached=1, output=2)


async def one(call: events.Call) -> object:
    [result] = await run_pipeline(async_client(), [call])
    return result


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_survive_packing(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids


@given(st.uuids(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_cursors_survive_writing(request_id: UUID, tokens: int, characters: int) -> None:
    cursor = Cursor(request_id, tokens, characters)
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "1.2.3", "a.b.c", f"{UUID(int=5)}.-1.2", f"{UUID(int=5)}.1", f"{UUID(int=5)}.\u0663.1"]
)
def test_what_is_no_cursor_is_none(text: str) -> None:
    assert Cursor.parse(text) is None


async def test_s26_only_the_claim_appends_and_a_repeat_is_refused() -> None:
    request_id, claim, later = new_id(), new_id(), new_id()
    append = append_call(request_id, claim, entry_id(2), 0, "ab", [1, 2])
    assert await one(append) == LOST
    assert await one(open_call(request_id, claim, 1, 0, 60)) == 1
    assert await one(append) == APPENDED
    assert await one(append) == REPEATED
    assert await one(open_call(request_id, later, 2, 0, 60)) == 1
    assert await one(append_call(request_id, claim, entry_id(3), 2, "c", [3])) == FENCED
    assert await one(open_call(request_id, claim, 1, 0, 60)) == 0  # an earlier attempt does not get it back
    assert await one(append_call(request_id, later, entry_id(3), 2, "C", [4])) == APPENDED
    found = await read_log(async_client(), request_id)
    assert found is not None
    assert (found.token_ids, found.text, found.from_token, found.from_char) == ([1, 2, 4], "abC", 0, 0)


async def test_the_first_entry_opens_the_log_in_one_step_with_itself() -> None:
    request_id, claim, later = new_id(), new_id(), new_id()
    first = opening_call(
        open_call(request_id, claim, 1, 0, 60), append_call(request_id, claim, entry_id(1), 0, "a", [1])
    )
    following = tail(request_id)
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0.05)
    assert await one(first) == APPENDED
    assert isinstance(await waiting, StartedEvent)
    assert await asyncio.wait_for(anext(following), 0.5) == TokensEvent("1-0", 1, 0, "a", None, pack_ids([1]))
    assert await one(first) == REPEATED  # and no second beginning
    assert len(await async_client().xrange(f"v1:{{{request_id}}}:out")) == 2
    assert await one(open_call(request_id, later, 2, 0, 60)) == 1
    assert await one(first) == FENCED
    assert await one(append_call(request_id, later, entry_id(2), 1, "b", [2])) == APPENDED


async def test_the_first_entry_brings_its_log_probabilities() -> None:
    request_id, claim = new_id(), new_id()
    appended = append_call(request_id, claim, entry_id(1), 0, "a", [1], b"[null]")
    assert await one(opening_call(open_call(request_id, claim, 1, 0, 60), appended)) == APPENDED
    [_, (_, fields)] = await async_client().xrange(f"v1:{{{request_id}}}:out")
    assert fields[b"l"] == b"[null]"


async def test_a_log_that_has_ended_is_read_no_more() -> None:
    """So the next reader starts at once: there is no read that waits, which would have to be ended first."""
    await async_client().config_resetstat()
    for _ in range(3):
        request_id = new_id()
        await one(close_call(request_id, 60, RESULT))
        assert [event async for event in tail(request_id)] == [EndEvent("0-1000", RESULT)]
    stats: Any = await async_client().info("commandstats")
    assert stats["cmdstat_xread"]["calls"] >= 3
    assert "cmdstat_client|unblock" not in stats


async def test_a_log_that_was_opened_again_is_read_without_overlap() -> None:
    request_id, claim = new_id(), new_id()
    await one(open_call(request_id, claim, 1, 0, 60))
    await one(append_call(request_id, claim, entry_id(2), 0, "ab", [1, 2]))
    await one(append_call(request_id, claim, entry_id(4), 0, "abcd", [1, 2, 3, 4]))  # everything, from memory
    found = await read_log(async_client(), request_id)
    assert found is not None
    assert (found.token_ids, found.text) == ([1, 2, 3, 4], "abcd")


async def test_text_without_a_token_of_its_own_is_kept() -> None:
    request_id, claim = new_id(), new_id()
    await one(open_call(request_id, claim, 1, 0, 60))
    for entry, text, ids in ((entry_id(1), "a", [1]), (entry_id(1, 1), "b", []), (entry_id(1, 2), "c", [])):
        assert await one(append_call(request_id, claim, entry, "abc".index(text), text, ids)) == APPENDED
    found = await read_log(async_client(), request_id)
    assert found is not None
    assert found.text == "abc"


async def follow(request_id: UUID, after: str = events.START) -> list[LogEvent]:
    return [event async for event in tail(request_id, after) if event is not None]


@pytest.mark.parametrize("watched", [1, events.BLOCK_UP_TO + 5])
async def test_every_watcher_sees_every_event_in_order(watched: int) -> None:
    ids = [new_id() for _ in range(watched)]
    claim = new_id()
    readers = [asyncio.create_task(follow(request_id)) for request_id in ids for _ in range(2)]
    await asyncio.sleep(0)
    for request_id in ids:
        await one(open_call(request_id, claim, 1, 0, 60))
    for number in range(1, 6):
        await run_pipeline(
            async_client(), [append_call(each, claim, entry_id(number), number - 1, "x", [number]) for each in ids]
        )
    for request_id in ids:
        await one(open_call(request_id, new_id(), 2, 0, 60))
        await one(close_call(request_id, 60, RESULT))
        await one(close_call(request_id, 60, RESULT))  # idempotent
    for found in await asyncio.wait_for(asyncio.gather(*readers), 5):
        assert [type(event) for event in found] == [StartedEvent, *[TokensEvent] * 5, RetryingEvent, EndEvent]
        assert [event.tokens for event in found if isinstance(event, TokensEvent)] == [1, 2, 3, 4, 5]


async def test_s9_a_late_reader_gets_the_whole_log_and_one_behind_an_entry_the_rest() -> None:
    request_id, claim = new_id(), new_id()
    await one(open_call(request_id, claim, 1, 0, 60))
    count = 3000
    await run_pipeline(
        async_client(), [append_call(request_id, claim, entry_id(n), n - 1, "x", [n]) for n in range(1, count + 1)]
    )
    await one(close_call(request_id, 60, RESULT))
    assert len(await follow(request_id)) == count + 2
    assert len(await follow(request_id, f"{count - 5}-0")) == 6


async def test_a_quiet_log_says_so() -> None:
    events_seen = tail(new_id())
    assert await anext(events_seen) is None
    await events_seen.aclose()  # type: ignore[attr-defined]
