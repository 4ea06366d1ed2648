"""Joining what is stored with what is live: whatever happens, a reader gets each character once."""

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import patch
from uuid import UUID

import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import RedisError

from chatsite.errors import Unavailable
from chatsite.ids import new_id
from conversations import follow as module
from conversations.follow import Done, Failed, Queued, Reader, Retrying, Started, Token, at_end, end_cursor, follow_from
from conversations.selectors import Reply
from inference.protocol import Cursor, EndEvent, LogEvent, QueuePlace, RetryingEvent, TokensEvent, Usage
from tests.conversations.followed import MESSAGE, REQUEST, TEXT, USER, World, cursor, in_world, read, reply, text_of

HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "persist", "lose", "crash", "crash_and_lose"]),
        st.integers(1, 40),
    ),
    max_size=25,
)


@settings(max_examples=400, deadline=None)
@given(happenings=HAPPENINGS, before=st.integers(0, 25), seen=st.floats(0, 1), lie=st.integers(-30, 30))
def test_s1_any_cursor_and_any_fault_give_each_character_once(
    happenings: list[tuple[str, int]], before: int, seen: float, lie: int
) -> None:
    """`before`: how far the reply is when the reader comes; `seen`: the part that it has; `lie`: in its tokens."""
    world = World(happenings)
    reached = 0
    for _ in range(before):
        world.step()
        reached = max(reached, world.emitted)
    after = cursor(int(reached * seen), max(0, int(reached * seen) + lie)) if before else None
    events = asyncio.run(read(world, after))

    assert text_of(events) == TEXT[after.characters if after else 0 :]
    assert [event for event in events if isinstance(event, Done | Failed)] == events[-1:]
    positions = [event.cursor.characters for event in events if isinstance(event, Token)]
    assert positions == sorted(set(positions))
    assert sum(isinstance(event, Started) for event in events) == (0 if after else 1)


@settings(max_examples=100, deadline=None)
@given(happenings=HAPPENINGS, base=st.integers(1, 60))
def test_s15_a_continued_reply_sends_only_what_is_new(happenings: list[tuple[str, int]], base: int) -> None:
    world = World(happenings, base)
    events = asyncio.run(read(world, cursor(base, base, new_id())))
    assert TEXT[:base] + text_of(events) == TEXT
    assert isinstance(events[0], Started)


async def test_the_cursor_of_each_event_leads_to_the_next() -> None:
    events = await read(World([("append", 5)] * 4))
    for number, event in enumerate(events):
        rest = await read(World([("append", 5)] * 4, base=0), event.cursor)  # type: ignore[union-attr]
        assert text_of(rest) == text_of(events[number + 1 :])


async def test_a_finished_reply_is_one_token_and_done() -> None:
    world = World([])
    world.terminal = True
    stored = world.reply
    assert await read(world, cursor(4)) == [
        Token(TEXT[4:], cursor(len(TEXT))),
        Done(MESSAGE, "complete", "stop", Usage(3, 0, len(TEXT)), end_cursor(stored)),
    ]
    assert await read(world, cursor(len(TEXT))) == [
        Done(MESSAGE, "complete", "stop", Usage(3, 0, len(TEXT)), end_cursor(stored))
    ]


async def test_nothing_comes_after_the_end() -> None:
    world = World([])
    world.terminal = True
    assert at_end(world.reply, end_cursor(world.reply))
    assert await read(world, end_cursor(world.reply)) == []
    assert not at_end(reply("streaming", TEXT), end_cursor(world.reply))


async def test_the_first_event_names_the_message() -> None:
    for world in (World([]), World([("append", 3)])):
        [first, *_] = await read(world)
        assert first.message_id == MESSAGE  # type: ignore[union-attr]


async def test_a_reply_that_waits_tells_its_place_when_it_changes() -> None:
    world = World([])
    waits = 4

    async def tail(request_id: UUID, after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        for _ in range(waits):
            yield None
        async for entry in World.tail(world, request_id, after):
            yield entry

    first, second = QueuePlace(2, 1.5), QueuePlace(1, None, loading=True)
    with in_world(world, [first, first, second, None]), patch.object(module.events, "tail", tail):
        events = [event async for event in follow_from(world.reply)]
    assert events[:2] == [Queued(MESSAGE, 2, 1.5, False), Queued(MESSAGE, 1, None, True)]
    assert isinstance(events[2], Started)


async def test_one_who_waits_longer_than_was_shown_is_told_so() -> None:
    world, moments = World([]), iter([10.0, 11.0, 14.0, 15.0])

    async def tail(request_id: UUID, after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        for _ in range(4):
            yield None
        async for entry in World.tail(world, request_id, after):
            yield entry

    with (
        in_world(world, [QueuePlace(1, 1.0)] * 4),
        patch.object(module.events, "tail", tail),
        patch.object(module, "monotonic", lambda: next(moments)),
    ):
        events = [event async for event in follow_from(world.reply)]
    assert events[:2] == [Queued(MESSAGE, 1, 1.0, False), Queued(MESSAGE, 1, None, False, late=True)]
    assert isinstance(events[2], Started)


async def test_a_reader_does_without_redis() -> None:
    world = World([])

    async def unreachable(_request_id: UUID) -> None:
        raise RedisError

    async def tail(_request_id: UUID, _after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        while True:
            yield None

    with (
        in_world(world),
        patch.object(module.events, "tail", tail),
        patch.object(module.inference_selectors, "queue_place", unreachable),
    ):
        assert text_of([event async for event in follow_from(world.reply)]) == TEXT


class Database:
    """Stands in for `run_db`: away for some calls, in the ways in which a restart is seen."""

    def __init__(self, away: int, answer: Reply | None) -> None:
        self.away = away
        self.answer = answer
        self.errors = [
            OperationalError("terminating connection"),
            InterfaceError("the connection is closed"),
            DatabaseError("no result"),
            Unavailable(),
        ]

    async def __call__(self, *_args: object, **_kwargs: object) -> Reply | None:
        if self.away:
            self.away -= 1
            raise self.errors[self.away % len(self.errors)]
        return self.answer


async def test_s2_a_database_that_restarts_ends_no_stream() -> None:
    """While the reply waits, and at its end, whose row must be read."""
    world = World([])
    away = 9
    database = Database(away, reply("complete", TEXT))
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def unreachable(_request_id: UUID) -> None:
        await database()

    async def tail(_request_id: UUID, _after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        for _ in range(4):
            yield None
        yield EndEvent("1-1000")

    with (
        patch.object(module.events, "tail", tail),
        patch.object(module, "run_db", database),
        patch.object(module.asyncio, "sleep", sleep),
        patch.object(module.inference_selectors, "queue_place", unreachable),
    ):
        events = [event async for event in follow_from(world.reply)]
    assert text_of(events) == TEXT
    assert isinstance(events[-1], Done)
    assert waits == [module.AWAY_SECONDS] * (away - 4)


async def test_a_mistake_of_ours_is_not_waited_for() -> None:
    async def broken(*_args: object) -> None:
        raise ProgrammingError("no such column")

    with patch.object(module, "run_db", broken), pytest.raises(ProgrammingError):
        await module.read_patiently(lambda: None)


async def test_a_silent_log_sends_the_reader_to_the_row() -> None:
    world = World([])
    silent = 0

    async def tail(_request_id: UUID, _after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        nonlocal silent
        while True:
            silent += 1
            yield None

    world.attempt, world.persisted, world.emitted = 1, 10, 10
    world.happenings = []
    with in_world(world), patch.object(module.events, "tail", tail):
        events = [event async for event in follow_from(world.reply)]
    assert silent == module.SILENT_SECONDS
    assert text_of(events) == TEXT
    assert isinstance(events[-1], Done)


async def test_a_conversation_that_is_deleted_meanwhile_ends_the_stream() -> None:
    world = World([("append", 3)])
    world.step()

    async def gone(_reader: Reader) -> None:
        return None

    async def tail(_request_id: UUID, _after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        yield EndEvent("3-1000")

    with in_world(world), patch.object(module.events, "tail", tail), patch.object(module, "_reread", gone):
        events = [event async for event in follow_from(world.reply)]
    assert isinstance(events[-1], Failed)
    assert (events[-1].code, events[-1].retryable) == ("not_found", False)


async def test_s2_a_failed_reply_keeps_its_text_and_says_why() -> None:
    failed = reply("failed", "Half a", error_code="engine_unavailable", error_message="No engine.", finish_reason="")
    events = [event async for event in follow_from(failed)]
    assert text_of(events) == "Half a"
    assert events[-1] == Failed(MESSAGE, "engine_unavailable", "No engine.", True, end_cursor(failed))


def test_s6_what_is_sent_is_linear_in_the_text() -> None:
    reader = Reader(reply("pending"), None)
    sent = 0
    for start in range(0, len(TEXT), 2):
        entry = TokensEvent(f"{start + 2}-0", start + 2, start, TEXT[start : start + 2])
        sent += len(text_of(reader.logged(entry)))
    assert sent == len(TEXT)


def test_a_reader_who_slept_through_a_continuation_is_led_into_it() -> None:
    reader = Reader(reply("streaming", "One two"), None)
    reader.stored(reply("streaming", "One two"))
    later = reply("streaming", "One two three", 7, request_id=new_id())
    assert reader.stored(later) == [
        Started(MESSAGE, USER, Cursor(later.request_id, 7, 7)),
        Token(" three", Cursor(later.request_id, 13, 13)),
    ]


def test_the_log_is_read_from_where_the_stored_text_ends() -> None:
    reader = Reader(reply("streaming", "One"), cursor(1))
    assert reader.stored(reply("streaming", "One")) == [Token("ne", cursor(3))]
    assert reader.entry == "3-0"


def test_retrying_is_told_where_it_happens() -> None:
    reader = Reader(reply("streaming", "One"), cursor(3))
    assert reader.logged(RetryingEvent("3-2", 2)) == [Retrying(2, cursor(3))]


@pytest.mark.parametrize(
    "text", ["", "x", f"{REQUEST}", f"{REQUEST}.1", f"{REQUEST}.-1.2", f"{REQUEST}.1.2.3", "a.1.2"]
)
def test_a_malformed_cursor_is_none(text: str) -> None:
    assert Cursor.parse(text) is None
