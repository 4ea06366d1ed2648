"""The page's WebSocket: one per page, on one conversation.

The page sends JSON: `hello` (what it shows), `send`, `stop`, `regenerate`, `continue`, `choose`, `ack`. It is answered
with htmx fragments (`frames`). Close codes: 4401 no session, 4404 not yours, 4408 too slow, 4429 too many frames,
1009 too big, 1011 our fault, 1013 a store is away.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from chatsite.accounts.authentication import authenticate_scope
from chatsite.accounts.protocol import Principal
from chatsite.concurrency import end_tasks
from chatsite.error_responses import CLOSE_TOO_SLOW, close_code, convert
from chatsite.errors import AppError, InvalidInput, NotAuthenticated, NotFound, TooLarge
from chatsite.ids import parse_id
from chatsite import notices
from conversations import frames, services
from conversations.flow import FrameBudget, Outbox, TooManyFrames, TooSlow
from conversations.follow import AWAY, is_away
from conversations.live import LivePage, Place
from inference.protocol import Cursor

PING_SECONDS: Final = 15.0
RECHECK_SECONDS: Final = 30.0  # session and membership
MAX_FRAME_BYTES: Final = 2 * services.MAX_CONTENT_BYTES  # JSON escapes may double a text
QUEUED_COMMANDS: Final = 16


class Hello(msgspec.Struct, tag="hello"):
    message: str | None = None
    request: str | None = None
    cursor: str | None = None
    again: bool = False  # not the first connection of this page


class Send(msgspec.Struct, tag="send"):
    content: str
    model: str | None = None


class Stop(msgspec.Struct, tag="stop"):
    message: str


class Regenerate(msgspec.Struct, tag="regenerate"):
    message: str


class Continue(msgspec.Struct, tag="continue"):
    message: str


class Choose(msgspec.Struct, tag="choose"):
    message: str


class Ack(msgspec.Struct, tag="ack"):
    frames: int


class Changed(msgspec.Struct):
    """A notice, put among the page's own commands so that only one thing at a time changes what it shows."""


Command = Hello | Send | Regenerate | Continue | Choose | Changed
decode = msgspec.json.Decoder(Hello | Send | Stop | Regenerate | Continue | Choose | Ack).decode


class ChatConsumer(AsyncWebsocketConsumer):
    page: LivePage | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        try:
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
        try:
            await self._open()
        except Exception as error:  # any of them closes the socket with the code that says why
            await self._close_for(error)

    async def _open(self) -> None:
        principal = await session_principal(self.scope)
        conversation_id = parse_id("conv", self.scope["url_route"]["kwargs"]["conversation"])
        if conversation_id is None:
            raise NotFound
        page = LivePage(principal, conversation_id, self.outbox.put, self._start)
        await page.check()
        self.page = page
        for task in (self._work(page), self._heartbeat(page), self._listen(page)):
            self._start(task)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.page is None:
            return  # refused, and closing
        try:
            self.budget.spend()
            self._accept(self._decode(text_data))
        except (TooManyFrames, TooLarge) as error:
            await self._close_for(error)
        except AppError as error:
            self._start(self._refuse(error))  # not awaited: it may wait for an acknowledgement, which arrives here

    def _decode(self, text: str | None) -> Any:
        if text is None:
            raise InvalidInput("Send text, not bytes.")
        if len(text) > MAX_FRAME_BYTES:
            raise TooLarge
        try:
            return decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # the last: nested too deep
            raise InvalidInput(f"This was not understood: {error}") from None

    def _accept(self, frame: Command | Stop | Ack) -> None:
        if isinstance(frame, Ack):
            self.outbox.acknowledge(frame.frames)
        elif isinstance(frame, Stop):  # at once: it may wait two seconds, or overtake what is queued
            self._start(self._stop(frame.message))
        else:
            try:
                self.commands.put_nowait(frame)
            except asyncio.QueueFull:
                raise TooManyFrames from None

    # Tasks: an error in one closes the socket, and the page connects again with its cursor

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._guard(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # `convert` logs what is not expected
            await self._close_for(error)

    async def _work(self, page: LivePage) -> None:
        while True:
            command = await self.commands.get()
            try:
                await self._carry_out(page, command)
            except AppError as error:
                if isinstance(error, TooSlow):
                    raise
                await self._refuse(error)

    async def _carry_out(self, page: LivePage, command: Command) -> None:
        principal = page.principal
        match command:
            case Hello():
                await page.catch_up(place_of(command))
                await page.refresh_sidebar(always=command.again)
                return
            case Send():
                await services.send(principal, page.conversation_id, command.content, model=command.model or None)
                await self.outbox.put(frames.ACCEPTED)
            case Regenerate():
                await services.regenerate(principal, message_id(command.message))
            case Continue():
                await services.continue_reply(principal, message_id(command.message))
            case Choose():
                await services.choose_version(principal, message_id(command.message))
        await page.refresh()
        await page.refresh_sidebar()

    async def _stop(self, message: str) -> None:
        assert self.page is not None
        try:
            await services.stop(self.page.principal, message_id(message))
        except AppError as error:
            await self._refuse(error)

    async def _listen(self, page: LivePage) -> None:
        async with notices.subscribed(page.principal.user_id) as changes:
            await self.commands.put(Changed())  # what changed before the subscription was there
            async for _ in changes:
                await self.commands.put(Changed())

    async def _heartbeat(self, page: LivePage) -> None:
        """A ping that the page can see (S8), and a look at whether the caller may still be here.

        While the database is away nobody can tell: it is asked again at the next ping.
        """
        since_check = 0.0
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self.outbox.put(frames.PING)
            since_check += PING_SECONDS
            if since_check >= RECHECK_SECONDS:
                try:
                    await self._recheck(page)
                    since_check = 0.0
                except AWAY as error:
                    if not is_away(error):
                        raise

    async def _recheck(self, page: LivePage) -> None:
        if await session_principal(self.scope) != page.principal:
            raise NotAuthenticated
        await page.check()

    # Answers

    async def _refuse(self, error: AppError) -> None:
        await self.outbox.put(frames.notice(frames.refusal(error)))
        await self.outbox.put(frames.refused(error))

    async def _send_text(self, frame: str) -> None:
        await self.send(text_data=frame)

    async def _close_for(self, error: Exception) -> None:
        """Closes the socket and ends its tasks, whether or not the close arrives: a socket that hears nothing any more
        must not go on pinging, or its page would never connect again."""
        if self.closing:
            return  # what fails after the first is its consequence
        self.closing, self.page = True, None
        converted = convert(error)
        try:
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


def message_id(text: str) -> UUID:
    """Raises NotFound."""
    found = parse_id("msg", text)
    if found is None:
        raise NotFound
    return found


def place_of(hello: Hello) -> Place:
    """What cannot be read counts as not shown: the page is then given the whole."""
    shown = parse_id("msg", hello.message or "")
    try:
        request = UUID(hello.request) if hello.request else None
    except ValueError:
        return Place()
    return Place(shown, request, Cursor.parse(hello.cursor) if hello.cursor else None)
