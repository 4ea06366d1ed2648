"""Joining what is stored with what is live: whatever happens, a reader gets each character once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
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
from conversations.follow import (
    Done,
    Failed,
    Queued,
    Reader,
    ReplyEvent,
    Retrying,
    Started,
    Token,
    at_end,
    end_cursor,
    follow_from,
)
from conversations.selectors import Reply
from inference.protocol import (
    Cursor,
    EndEvent,
    LogEvent,
    QueuePlace,
    RetryingEvent,
    StartedEvent,
    TokensEvent,
    Usage,
)

TEXT = "Once upon a time there lived 🐋 a whale \N{EM DASH} and it sang.\n" * 3
REQUEST, MESSAGE, USER = new_id(), new_id(), new_id()


def reply(status: str = "streaming", text: str = "", base: int = 0, **changes: object) -> Reply:
    """A stored reply in which each character is a token."""
    known = Reply(MESSAGE, USER, REQUEST, status, text, len(text), base, "stop", Usage(3, 0, len(text)))
    return replace(known, **changes)  # type: ignore[arg-type]


def cursor(characters: int, tokens: int | None = None, request: UUID = REQUEST) -> Cursor:
    return Cursor(request, characters if tokens is None else tokens, characters)


def text_of(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Token))


class World:
    """A reply on its way: its row, its log, and a list of what will happen to them."""

    def __init__(self, happenings: list[tuple[str, int]], base: int = 0) -> None:
        self.emitted = self.persisted = self.base = base
        self.attempt = 0
        self.log: list[LogEvent] = []
        self.happenings = list(happenings)
        self.terminal = False
        self.row_gone = False

    def step(self) -> None:
        """One thing happens; when all has happened, the reply is written to its end and settled."""
        if self.terminal:
            return
        if not self.attempt:
            self._begin()
        elif self.happenings:
            name, amount = self.happenings.pop(0)
            getattr(self, name)(amount)
        else:
            self.append(len(TEXT))
            self.terminal = True
            self.log.append(EndEvent(f"{self.emitted}-1000"))

    def _begin(self) -> None:
        self.attempt += 1
        entry = f"{self.emitted}-{self.attempt}"
        self.log.append(StartedEvent(entry) if self.attempt == 1 else RetryingEvent(entry, self.attempt))

    def append(self, amount: int) -> None:
        start, self.emitted = self.emitted, min(len(TEXT), self.emitted + amount)
        if self.emitted > start:
            self.log.append(TokensEvent(f"{self.emitted}-0", self.emitted, start, TEXT[start : self.emitted]))

    def persist(self, _amount: int) -> None:
        self.persisted = self.emitted

    def lose(self, back: int) -> None:
        """Redis is emptied; the runner opens the log again with the last `back` characters of its memory."""
        start = max(self.base, self.emitted - back)
        self.log = []
        if self.emitted > start:
            self.log.append(TokensEvent(f"{self.emitted}-0", self.emitted, start, TEXT[start : self.emitted]))

    def crash(self, _amount: int) -> None:
        """The runner dies; another goes on from the log or, where that is gone, from what is saved."""
        if not self.log:
            self.emitted = self.persisted
        self._begin()

    def crash_and_lose(self, _amount: int) -> None:
        self.log = []
        self.crash(0)

    @property
    def reply(self) -> Reply:
        if self.terminal:
            return reply("complete", TEXT)
        return reply("streaming" if self.attempt else "pending", TEXT[: self.persisted], self.base)

    async def tail(self, _request_id: UUID, after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        """As `inference.events.tail`: entries behind `after`, None when a second passed without one."""
        last = order(after)
        while True:
            found = [entry for entry in self.log if order(entry.entry) > last]
            if not found:
                self.step()
                yield None
                continue
            last = order(found[0].entry)
            yield found[0]
            if isinstance(found[0], EndEvent):
                return
            self.step()

    async def reread(self, _reader: Reader) -> Reply | None:
        self.step()
        return None if self.row_gone else self.reply

    async def sleep(self, _seconds: float) -> None:
        self.step()


def order(entry: str) -> tuple[int, int]:
    tokens, _, n = entry.partition("-")
    return int(tokens), int(n)


@contextmanager
def in_world(world: World, places: list[QueuePlace | None] = []) -> Iterator[None]:  # noqa: B006
    waiting = iter(places)

    async def place(_request_id: UUID) -> QueuePlace | None:
        return next(waiting, None)

    with (
        patch.object(module.events, "tail", world.tail),
        patch.object(module, "_reread", world.reread),
        patch.object(module.asyncio, "sleep", world.sleep),
        patch.object(module.inference_selectors, "queue_place", place),
    ):
        yield


async def read(world: World, after: Cursor | None = None, places: list[QueuePlace | None] = []) -> list[ReplyEvent]:  # noqa: B006
    with in_world(world, places):
        return [event async for event in follow_from(world.reply, after)]


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
