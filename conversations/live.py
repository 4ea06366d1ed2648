"""A page that is open on a conversation: what it shows, and the frames that bring it up to date.

The page says what it shows (`Place`); everything else follows from the rows. So a first connection, a reconnection and
a change made in another tab all take the same way: compare, send what is missing, follow the reply that runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from uuid import UUID

from chatsite.accounts.protocol import Principal
from chatsite.concurrency import end_tasks, in_thread
from chatsite.database import run_db
from chatsite.errors import NotFound
from chatsite.ids import public_id
from conversations import frames, selectors
from conversations.articles import NOT_STARTED, Around, Article, Branch, load_article, load_branch
from conversations.follow import (
    Done,
    Failed,
    Queued,
    ReplyEvent,
    Retrying,
    Started,
    Token,
    follow_from,
    read_patiently,
)
from conversations.meters import Meters, load_meters
from conversations.models import Conversation
from inference.protocol import Cursor

Emit = Callable[[str], Awaitable[None]]
Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]
Mark = tuple[UUID, UUID | None]  # a message as it is shown: its id, and the request of its text


@dataclass(frozen=True)
class Place:
    """What a page shows last, in its own words: nothing here is trusted."""

    message_id: UUID | None = None
    request_id: UUID | None = None
    cursor: Cursor | None = None  # of a reply that it shows as running
    around: Mapping[UUID, Around] = field(default_factory=dict)  # of the turns that it shows
    model: str | None = None  # of the conversation, as it was last told


class Gone(NotFound):
    """This conversation was deleted."""


class LivePage:
    """One page's view of one conversation. Its methods are called one at a time; all but `check` wait for a database
    that is away, so that its restart costs the page neither its socket nor the end of a reply."""

    def __init__(self, principal: Principal, conversation_id: UUID, emit: Emit, spawn: Spawn) -> None:
        self.principal = principal
        self.conversation_id = conversation_id
        self._emit = emit
        self._spawn = spawn
        self._shown: list[Mark] | None = None  # None until the page has said what it shows
        self._around: dict[UUID, Around] = {}  # of those that it shows
        self._model: str | None = None  # the conversation's, as the page knows it
        self._meters: Meters | None = None
        self._following: asyncio.Task[None] | None = None
        self._streaming: UUID | None = None  # the reply that is followed, until the page has its end

    async def catch_up(self, place: Place) -> None:
        """The page has (re)connected. What it shows is kept where it can be, and replaced where not."""
        await self._unfollow()
        branch = await self._load()
        self._around, self._model = dict(place.around), place.model
        last = branch.articles[-1] if branch.articles else None
        if last is not None and _continues(place, last):
            self._shown = marks(branch.articles)
            await self._tell_around(branch)
            if place.cursor is not None:
                self._follow(last, place.cursor)
            return
        self._shown = shown_at(place, branch.articles)
        if self._shown:
            await self._bring(branch)
        else:
            await self._show(branch)

    async def refresh(self, confirmed: str | None = None) -> None:
        """Something may have changed: appends, removes and follows what the page does not show yet.

        `confirmed`: the id of a message that the page shows as being sent. It gives way to the real one, in one frame.
        Raises Gone.
        """
        settled = frames.confirm(confirmed) if confirmed else ""
        if self._shown is None:  # it has not connected; catch_up will see to it
            await self._emit_all([settled])
            return
        await self._bring(await self._load(), settled)

    async def _bring(self, branch: Branch, settled: str = "") -> None:
        """Makes the page show the branch, and touches nothing that it shows already."""
        assert self._shown is not None
        now = marks(branch.articles)
        kept = common_start(self._shown, now)
        if kept is None:
            await self._unfollow()
            await self._show(branch, settled)
        elif kept == Kept(len(self._shown), len(now)):
            await self._emit_all([settled])
        else:
            await self._unfollow()
            await self._change(branch, kept, settled)
        await self._tell_around(branch)

    async def _tell_around(self, branch: Branch) -> None:
        """What changed elsewhere below the turns that stay, and the model. What a page has not told of is as it is."""
        stale = [each for each in branch.articles if self._around.get(each.id, each.around) != each.around]
        await self._emit_all([frames.around(article) for article in stale if not article.running])
        self._note_around(branch.articles)
        before, self._model = self._model, branch.model
        if before not in (None, branch.model):
            await self._emit(frames.model(branch.model))

    def _note_around(self, articles: Iterable[Article]) -> None:
        self._around |= {article.id: article.around for article in articles}

    async def _change(self, branch: Branch, kept: "Kept", settled: str) -> None:
        """Replaces what comes behind the part that may stay."""
        assert self._shown is not None
        if self._streaming is not None and kept.shown and self._shown[kept.shown - 1][0] == self._streaming:
            kept = Kept(kept.shown - 1, kept.now - 1)  # its end was not sent yet: show it anew
        gone, new = self._shown[kept.shown :], branch.articles[kept.now :]
        appended = await in_thread(frames.append, self._public_id, new)
        self._shown[kept.shown :] = marks(branch.articles)[kept.now :]
        self._note_around(new)
        self._streaming = None
        removed = [frames.remove(message_id) for message_id, _ in gone]
        await self._emit_all([settled, *removed, *appended, self._action(branch), frames.notice("")])
        self._follow_running(branch)
        if not branch.running:
            await self.refresh_meters()

    async def show_feedback(self, message_id: UUID, value: int) -> None:
        """That which this page has given itself."""
        before = self._around.get(message_id)
        if before is not None:
            self._around[message_id] = before._replace(feedback=value)
        await self._emit(frames.feedback(message_id, value))

    def shows_end_of(self, message_id: UUID) -> bool:
        """Whether it is the last message that the page shows."""
        return bool(self._shown) and self._shown[-1][0] == message_id  # type: ignore[index]

    async def refresh_meters(self, *, told: bool = False) -> None:
        """Sends the figures under the message box when they have changed. `told`: the page has them already."""
        conversation = await read_patiently(self._conversation)
        meters = await load_meters(self.principal, conversation, conversation.model.context_length)
        before, self._meters = self._meters, meters
        if meters != before and not told:
            await self._emit(frames.meters(meters))

    @property
    def replying(self) -> bool:
        """Whether the page shows a reply that runs."""
        return self._streaming is not None

    @property
    def meters_move(self) -> bool:
        """Whether the figures change by themselves: used tokens of the minute come back as time passes."""
        meters = self._meters
        return meters is not None and meters.quota_left is not None and meters.quota_left < meters.quota_limit

    async def check(self) -> None:
        """Raises NotFound when the conversation is gone or no longer the caller's."""
        await run_db(selectors.get_conversation, self.principal, self.conversation_id)

    async def _load(self) -> Branch:
        try:
            return await read_patiently(load_branch, self.principal, self.conversation_id)
        except NotFound:
            raise Gone from None

    def _conversation(self) -> Conversation:
        """With its model."""
        rows = selectors.conversations_of(self.principal).select_related("model")
        found = next(iter(rows.filter(id=self.conversation_id)), None)
        if found is None:
            raise Gone
        return found

    async def _show(self, branch: Branch, settled: str = "") -> None:
        whole = await in_thread(frames.thread, self._public_id, branch)
        self._streaming = None
        self._shown = marks(branch.articles)
        self._note_around(branch.articles)
        await self._emit_all([settled, *whole, self._action(branch)])
        self._follow_running(branch)

    async def _emit_all(self, parts: Iterable[str]) -> None:
        for frame in frames.pack(parts):
            await self._emit(frame)

    @property
    def _public_id(self) -> str:
        return public_id("conv", self.conversation_id)

    @staticmethod
    def _action(branch: Branch) -> str:
        return frames.action(branch.running.id if branch.running else None)

    def _follow_running(self, branch: Branch) -> None:
        if (running := branch.running) and running.cursor:
            self._follow(running, running.cursor)

    def _follow(self, article: Article, cursor: Cursor) -> None:
        self._streaming = article.id
        self._following = self._spawn(self._relay(article, cursor))

    async def _unfollow(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            await end_tasks([task])

    async def _relay(self, article: Article, cursor: Cursor) -> None:
        """Passes a running reply on until it ends."""
        relay = Relay(article)
        with suppress(NotFound):  # the conversation was deleted: a notice tells, and the page is shown the others
            reply = await read_patiently(selectors.get_reply, self.principal, article.id)
            async with aclosing(follow_from(reply, cursor)) as events:
                async for event in events:
                    if isinstance(event, Done | Failed):
                        await self._finish(article.id)
                        return
                    for frame in relay.frames(event):
                        await self._emit(frame)

    async def _finish(self, message_id: UUID) -> None:
        article = await read_patiently(load_article, self.principal, message_id)
        if not article.running:  # else it was continued at once, from another tab: a notice tells
            parts = await in_thread(frames.finished, self._public_id, article)
            self._note_around([article])
            await self._emit_all(parts)
            self._streaming = None  # only now: what ends this task before that shows the end anew


class Relay:
    """Events of one reply as frames: says once that it replies, and takes the note away when text comes."""

    def __init__(self, article: Article) -> None:
        self.article = article
        self._announced = False
        self._noted = True  # whether the line under the text says something

    def frames(self, event: ReplyEvent) -> list[str]:
        message_id = self.article.id
        match event:
            case Token():
                quiet = frames.quiet(message_id) + self._announce() if self._noted else ""
                self._noted = False
                first, *more = frames.deltas(message_id, event)
                return [quiet + first, *more]
            case Queued():
                self._noted = True
                return [frames.queued(event, self.article.model)]
            case Started():
                self._noted = True
                return [frames.waiting(message_id) + self._announce()]
            case Retrying():
                self._noted = True
                return [frames.retrying(message_id, event)]
            case _:
                return []

    def _announce(self) -> str:
        if self._announced:
            return ""
        self._announced = True
        return frames.announce("Replying")


# Comparing, without I/O


@dataclass(frozen=True)
class Kept:
    """How much of the beginning is the same, as indexes into both lists."""

    shown: int
    now: int


def marks(articles: Sequence[Article]) -> list[Mark]:
    return [(article.id, article.request_id) for article in articles]


def common_start(shown: Sequence[Mark], now: Sequence[Mark]) -> Kept | None:
    """None when they share nothing: all must be shown anew. `now` may begin later, as the newest page moves on."""
    if not shown and not now:
        return Kept(0, 0)
    if not now or now[0] not in shown:
        return None
    offset = shown.index(now[0])
    length = 0
    while length < len(now) and offset + length < len(shown) and shown[offset + length] == now[length]:
        length += 1
    return Kept(offset + length, length)


def shown_at(place: Place, articles: Sequence[Article]) -> list[Mark]:
    """What a page shows that ends at `place`; nothing where that is not among the articles.

    What stands above a turn never changes. A reply that was running there may have another end by now.
    """
    ids = [article.id for article in articles]
    if place.message_id not in ids:
        return []
    at = ids.index(place.message_id)
    settled = place.cursor is None and not articles[at].running
    return [*marks(articles[:at]), (place.message_id, place.request_id if settled else NOT_STARTED)]


def _continues(place: Place, last: Article) -> bool:
    """Whether the page shows the branch as it is, or a reply that it can be told the rest of."""
    if place.message_id != last.id or place.request_id != last.request_id:
        return False
    if place.cursor is None:
        return not last.running
    return place.cursor.request_id in (last.request_id, NOT_STARTED)
