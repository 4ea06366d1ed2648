"""What a page may say over its socket, as JSON with a `type`, and how it is carried out once."""

import asyncio
import time
from typing import Final
from uuid import UUID

import msgspec

from chatsite.accounts import idempotency
from chatsite.accounts.idempotency import Replay
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import IdempotencyInFlight, InvalidInput, NotFound, TooLarge
from chatsite.ids import parse_id, public_id
from chatsite.json_values import find_fault
from conversations import selectors, services
from conversations.articles import Around
from conversations.drafts import Remember
from conversations.flow import carry_through
from conversations.live import Place
from inference.protocol import Cursor

MAX_FRAME_BYTES: Final = 2 * services.MAX_CONTENT_BYTES  # JSON escapes may double a text
IN_FLIGHT_SECONDS: Final = 5.0  # how long a repeated send waits for the first one to be decided
IN_FLIGHT_POLL: Final = 0.1


class Hello(msgspec.Struct, tag="hello"):
    """What the page shows: its first frame."""

    message: str | None = None
    request: str | None = None
    cursor: str | None = None
    again: bool = False  # not the first connection of this page
    around: list[tuple[str, int, int, int]] = []  # below the turns it shows: id, version, versions, feedback
    model: str | None = None  # of the conversation, as the page was told it


class Send(msgspec.Struct, tag="send"):
    """`id`: made by the page; what it has sent once is not written again. `edits`: the message that it replaces."""

    content: str
    id: str | None = None
    model: str | None = None
    edits: str | None = None


class Stop(msgspec.Struct, tag="stop"):
    message: str


class Regenerate(msgspec.Struct, tag="regenerate"):
    message: str


class Smaller(msgspec.Struct, tag="smaller"):
    """The reply waits, and somebody would rather have another model's now."""

    message: str


class Continue(msgspec.Struct, tag="continue"):
    message: str


class Choose(msgspec.Struct, tag="choose"):
    message: str


class Feedback(msgspec.Struct, tag="feedback"):
    message: str
    value: int


class Seen(msgspec.Struct, tag="seen"):
    """A visible page has shown the end of the reply that this request made."""

    request: str


class Ack(msgspec.Struct, tag="ack"):
    frames: int


Command = Hello | Send | Regenerate | Smaller | Continue | Choose | Feedback | Seen
Frame = Hello | Send | Stop | Regenerate | Smaller | Continue | Choose | Feedback | Seen | Ack
_decode = msgspec.json.Decoder(Frame).decode


def decode(text: str | None) -> Frame:
    """Raises InvalidInput, TooLarge."""
    if text is None:
        raise InvalidInput("Send text, not bytes.")
    if len(text) > MAX_FRAME_BYTES:
        raise TooLarge
    try:
        frame = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # the last: nested too deep
        raise InvalidInput(f"This was not understood: {error}") from None
    if (fault := find_fault(text.encode(), frame)) is not None:
        raise InvalidInput(f"Invalid value for '{fault.path}': {fault.reason}.", param=fault.path)
    return frame


async def send(principal: Principal, conversation_id: UUID, command: Send) -> None:
    """Sends or edits. With an id that was accepted before, it does nothing. Raises as `services.send`.

    A page that goes away meanwhile does not cut it short: when it asks again, the first try is decided.
    """
    await carry_through(_send_once(principal, conversation_id, command))


async def _send_once(principal: Principal, conversation_id: UUID, command: Send) -> None:
    if command.id is None:
        await _send(principal, conversation_id, command, None)
        return
    route, key = f"WS /ws/c/{public_id('conv', conversation_id)}/", command.id
    if await earlier_answer(principal, route, key, msgspec.json.encode(command)) is not None:
        return

    def remember(message: UUID, base: Cursor | None) -> None:
        idempotency.record(principal, route, key, 200, {"message": public_id("msg", message)})

    try:
        await _send(principal, conversation_id, command, remember)
    except BaseException:
        await idempotency.abandon(principal, route, key)
        raise


async def _send(principal: Principal, conversation_id: UUID, command: Send, remember: Remember | None) -> None:
    model = command.model or None
    if command.edits is None:
        await services.send(principal, conversation_id, command.content, model=model, remember=remember)
    else:
        edited = await message_in(principal, conversation_id, command.edits)
        await services.edit(principal, edited, command.content, model=model, remember=remember)


async def earlier_answer(principal: Principal, route: str, key: str, body: bytes) -> Replay | None:
    """What it was answered when it was accepted before; None: go on, as with `idempotency.begin`.

    A page that connects again may repeat what is being decided: that is awaited. Raises IdempotencyInFlight,
    IdempotencyMismatch, InvalidInput.
    """
    until = time.monotonic() + IN_FLIGHT_SECONDS
    while True:
        try:
            return await idempotency.begin(principal, route, key, body)
        except IdempotencyInFlight:
            if time.monotonic() >= until:
                raise IdempotencyInFlight(
                    "It is not known yet whether this was sent.", retry_after=IN_FLIGHT_SECONDS
                ) from None
            await asyncio.sleep(IN_FLIGHT_POLL)


def message_id(text: str) -> UUID:
    """Raises NotFound."""
    found = parse_id("msg", text)
    if found is None:
        raise NotFound
    return found


async def message_in(principal: Principal, conversation_id: UUID, text: str) -> UUID:
    """A page changes its own conversation alone, whatever it names. Raises NotFound."""
    found = await run_db(selectors.get_message, principal, message_id(text))
    if found.conversation_id != conversation_id:
        raise NotFound
    return found.id


def request_id(text: str) -> UUID:
    """Raises NotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound from None


def place_of(hello: Hello) -> Place:
    """What cannot be read counts as not shown: the page is then given the whole."""
    shown = parse_id("msg", hello.message or "")
    try:
        request = UUID(hello.request) if hello.request else None
    except ValueError:
        return Place()
    around = {found: Around(*told) for name, *told in hello.around if (found := parse_id("msg", name))}
    return Place(shown, request, Cursor.parse(hello.cursor) if hello.cursor else None, around, hello.model)
