"""A world without Redis and PostgreSQL in which a reply is written, and its readers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch
from uuid import UUID

from chatsite.ids import new_id
from conversations import follow as module
from conversations.follow import Reader, ReplyEvent, Token, follow_from
from conversations.selectors import Reply
from inference.protocol import Cursor, EndEvent, LogEvent, QueuePlace, RetryingEvent, StartedEvent, TokensEvent, Usage

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
