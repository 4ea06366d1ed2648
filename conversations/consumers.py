"""The page's WebSocket: one per page, on one conversation or, on the page of a new chat, on none.

The page sends JSON (`commands`) and is answered with htmx fragments (`frames`). Close codes: 4401 no session, 4404 not
yours or deleted, 4408 too slow, 4429 too many frames, 1009 too big, 1011 our fault, 1013 a store is away.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from autobahn.exception import Disconnected
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from chatsite import notices
from chatsite.accounts.authentication import authenticate_scope
from chatsite.accounts.protocol import Principal
from chatsite.concurrency import end_tasks
from chatsite.database import run_db
from chatsite.error_responses import CLOSE_TOO_SLOW, close_code, convert
from chatsite.errors import AppError, InvalidInput, NotAuthenticated, NotFound, TooLarge
from chatsite.ids import parse_id
from chatsite.timezones import cookies_of, in_zone_of
from conversations import commands, demand, frames, services
from conversations.commands import (
    Ack,
    Choose,
    Command,
    Continue,
    Feedback,
    Hello,
    Regenerate,
    Seen,
    Send,
    Smaller,
    Stop,
    message_id,
    message_in,
    place_of,
    request_id,
)
from conversations.errors import NotWaiting, ReplyRunning
from conversations.flow import FrameBudget, Outbox, TooManyFrames, TooSlow
from conversations.follow import AWAY, is_away
from conversations.live import Gone, LivePage
from conversations.live_sidebar import LiveSidebar

PING_SECONDS: Final = 15.0
RECHECK_SECONDS: Final = 30.0  # session and membership
QUEUED_COMMANDS: Final = 16
CHANGE_SECONDS: Final = 0.2  # at least from one look at what others changed to the next


class ChatConsumer(AsyncWebsocketConsumer):
    principal: Principal | None = None  # None before it is let in, and once it closes
    page: LivePage | None = None  # None on the page of a new chat
    sidebar: LiveSidebar

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        try:
            with in_zone_of(cookies_of(scope)):
                await super().__call__(scope, receive, send)
        finally:  # whether the page left or the server stops
            await end_tasks(self.tasks)

    async def connect(self) -> None:
        if not same_origin(self.scope):
            await self.close()  # before it is accepted: the handshake is refused with 403
            return
        await self.accept()
        self.outbox = Outbox(self._send_text)
        self.budget = FrameBudget()
        self.commands: asyncio.Queue[Command] = asyncio.Queue(QUEUED_COMMANDS)
        self.greeted = False
        self.changed: set[UUID] = set()  # what notices told of and the page was not shown yet
        self.showing = False  # whether a task does so
        self.turn = asyncio.Lock()  # only one thing at a time changes what the page shows
        try:
            await self._open()
        except Exception as error:  # any of them closes the socket with the code that says why
            await self._close_for(error)

    async def _open(self) -> None:
        principal = await session_principal(self.scope)
        conversation_id = conversation_of(self.scope)
        page = None
        if conversation_id is not None:
            page = LivePage(principal, conversation_id, self.outbox.put, self._start)
            await page.check()
        self.principal, self.page = principal, page
        self.sidebar = LiveSidebar(principal, conversation_id, self.outbox.put)
        for task in (self._work(), self._heartbeat(), self._listen(principal.user_id)):
            self._start(task)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.principal is None:
            return  # refused, and closing
        try:
            self.budget.spend()
            self._accept(commands.decode(text_data))
        except (TooManyFrames, TooLarge) as error:
            await self._close_for(error)
        except AppError as error:
            self._start(self._refuse(error))  # not awaited: it may wait for an acknowledgement, which arrives here

    def _accept(self, frame: commands.Frame) -> None:
        if isinstance(frame, Ack):
            self.outbox.acknowledge(frame.frames)
        elif isinstance(frame, Stop):  # at once: it may wait two seconds, or overtake what is queued
            self._start(self._stop(self._caller(), frame.message))
        elif isinstance(frame, Hello) and self.greeted:  # each may cost a whole thread
            raise InvalidInput("A page says hello once on each connection.")
        else:
            self.greeted = self.greeted or isinstance(frame, Hello)
            try:
                self.commands.put_nowait(frame)
            except asyncio.QueueFull:
                raise TooManyFrames from None

    def _caller(self) -> Principal:
        if self.principal is None:
            raise NotAuthenticated
        return self.principal

    # Tasks: an error in one closes the socket, and the page connects again with its cursor

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._guard(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Disconnected:  # the page is gone, and the server's own word of that is on its way
            await end_tasks(self.tasks - {asyncio.current_task()})  # type: ignore[arg-type]
        except Exception as error:  # `convert` logs what is not expected
            await self._close_for(error)

    async def _work(self) -> None:
        while True:
            command = await self.commands.get()
            try:
                async with self.turn:
                    await self._carry_out(self._caller(), command)
            except (TooSlow, Gone):
                raise
            except AppError as error:
                await self._refuse_command(command, error)
                if self.page is not None and error.status == HTTPStatus.TOO_MANY_REQUESTS:
                    await self.page.refresh_meters()  # what is said to be used up should not look free

    async def _carry_out(self, principal: Principal, command: Command) -> None:
        page = self.page
        if page is None:
            if not isinstance(command, Hello):
                raise NotFound
            await self.sidebar.refresh(always=command.again)
        else:
            await self._act(principal, page, command)

    async def _act(self, principal: Principal, page: LivePage, command: Command) -> None:
        """What a person does on the page of a conversation. What follows from it is shown at once."""
        match command:
            case Hello():
                await page.catch_up(place_of(command))
                await self.sidebar.refresh(always=command.again)
                await page.refresh_meters(told=not command.again)
                return
            case Seen():
                await services.mark_seen(principal, page.conversation_id, request_id(command.request))
                return  # a notice tells, here as everywhere
            case Feedback():
                found = await message_in(principal, page.conversation_id, command.message)
                await run_db(services.give_feedback, principal, found, command.value)
                await page.show_feedback(found, command.value)
                return
            case Send():
                await commands.send(principal, page.conversation_id, command)
                await page.refresh(command.id)
                await self.outbox.put(frames.accepted(command.id))
            case Smaller():
                await self._take_smaller(principal, page, command)
            case Regenerate() | Continue():
                await self._reply_again(principal, page, command)
            case Choose():
                await services.choose_version(
                    principal, await message_in(principal, page.conversation_id, command.message)
                )
        await page.refresh()
        await self.sidebar.refresh()

    async def _reply_again(self, principal: Principal, page: LivePage, command: Regenerate | Continue) -> None:
        """A second press of the button does nothing: the page shows the reply that the first one asked for."""
        found = await message_in(principal, page.conversation_id, command.message)
        begin = services.regenerate if isinstance(command, Regenerate) else services.continue_reply
        try:
            await begin(principal, found)
        except ReplyRunning:
            await page.refresh()
            if not page.replying:
                raise

    async def _take_smaller(self, principal: Principal, page: LivePage, command: Smaller) -> None:
        """A second press of the button does nothing, nor does one that comes when the reply has begun."""
        found = await message_in(principal, page.conversation_id, command.message)
        try:
            await services.take_smaller(principal, found)
        except NotWaiting:
            await page.refresh()
            if not page.replying:
                raise

    def _tell(self, what: UUID) -> None:
        """The first change is shown at once, and what comes meanwhile together."""
        self.changed.add(what)
        if len(self.changed) > notices.PENDING_LIMIT:
            self.changed = {notices.ANYTHING}
        if not self.showing:
            self.showing = True
            self._start(self._show_changes())

    async def _show_changes(self) -> None:
        while self.changed:
            async with self.turn:
                changed, self.changed = self.changed, set()
                await self._show_changed(changed)
            await asyncio.sleep(CHANGE_SECONDS)
        self.showing = False

    async def _show_changed(self, changed: Collection[UUID]) -> None:
        await self.sidebar.refresh()  # first: it has news even where the conversation is gone
        page = self.page
        if page is None:
            return
        if page.conversation_id in changed or notices.ANYTHING in changed:
            await page.refresh()
        elif any(map(page.shows_end_of, changed)):  # the reply has ended, and what it held is given back
            await page.refresh_meters()

    async def _stop(self, principal: Principal, message: str) -> None:
        try:
            await services.stop(principal, message_id(message))
        except AppError as error:
            await self._refuse(error)

    async def _listen(self, user_id: UUID) -> None:
        async with notices.subscribed(user_id) as changes:
            self._tell(notices.ANYTHING)  # what changed before the subscription was there
            async for what in changes:
                if what == notices.SESSIONS:
                    await self._recheck_if_possible()
                else:
                    self._tell(what)

    async def _heartbeat(self) -> None:
        """A ping that the page can see (S8), and a look at whether the caller may still be here."""
        unchecked = 0.0  # seconds
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self.outbox.put(frames.PING)
            if self.page is not None and self.page.meters_move:
                await self.page.refresh_meters()
            unchecked += PING_SECONDS
            if unchecked >= RECHECK_SECONDS and await self._recheck_if_possible():
                unchecked = 0.0

    async def _recheck_if_possible(self) -> bool:
        """False while the database is away: nobody can tell then, and it is asked again at the next ping."""
        try:
            self._go_on_as(await session_principal(self.scope))
            if self.page is not None:
                await self.page.check()
        except AWAY as error:
            if not is_away(error):
                raise
            return False
        return True

    def _go_on_as(self, caller: Principal) -> None:
        """With the limits of now. In another organization the page is another: it is loaded anew, as one whose session
        has ended is. Raises NotAuthenticated."""
        before = self.principal
        if before is None or (caller.user_id, caller.organization_id) != (before.user_id, before.organization_id):
            raise NotAuthenticated
        self.principal = caller
        if self.page is not None:
            self.page.principal = caller

    # Answers

    async def _refuse_command(self, command: Command, error: AppError) -> None:
        principal, told = self._caller(), await demand.worded(self._caller(), error)
        if isinstance(command, Send) and command.id is not None:  # its page says so beside the message
            smaller = await demand.smaller_for(principal, error, command.model, command.content)
            await self.outbox.put(frames.refused(told, command.id, smaller))
        else:
            await self._refuse(told)

    async def _refuse(self, error: AppError) -> None:
        over_quota = frames.is_over_quota(error)
        await self.outbox.put(frames.notice(error.message, error.retry_after, over_quota=over_quota))
        await self.outbox.put(frames.refused(error))

    async def _send_text(self, frame: str) -> None:
        await self.send(text_data=frame)

    async def _close_for(self, error: Exception) -> None:
        """Closes the socket and ends its tasks, whether or not the close arrives: a socket that hears nothing any more
        must not go on pinging, or its page would never connect again."""
        if self.closing:
            return  # what fails after the first is its consequence
        self.closing, self.principal = True, None
        converted = convert(error)
        try:
            with suppress(Disconnected):
                await self.close(CLOSE_TOO_SLOW if isinstance(converted, TooSlow) else close_code(converted))
        finally:
            await end_tasks(self.tasks - {asyncio.current_task()})  # type: ignore[arg-type]


async def session_principal(scope: Mapping[str, Any]) -> Principal:
    """Whose session this is. Raises NotAuthenticated, for an API key too: programs use the event streams."""
    caller = await authenticate_scope(scope)
    if not caller.by_cookie:
        raise NotAuthenticated("A WebSocket needs a browser session.")
    return caller.principal


def same_origin(scope: Mapping[str, Any]) -> bool:
    """Whether the page that connects was served by this site: cookies are sent from any."""
    headers = dict(scope["headers"])
    origin, host = (headers.get(name, b"").decode("latin-1").lower() for name in (b"origin", b"host"))
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS) and urlsplit(origin).netloc == host


def conversation_of(scope: Mapping[str, Any]) -> UUID | None:
    """The conversation in the address, None where it names none. Raises NotFound."""
    name = scope["url_route"]["kwargs"].get("conversation")
    if name is None:
        return None
    found = parse_id("conv", name)
    if found is None:
        raise NotFound
    return found
