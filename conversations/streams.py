"""The native API's raw routes: what streams, what waits, and what is called most."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from django.conf import settings
from msgspec import UNSET, Meta, UnsetType

from chatsite.accounts import idempotency
from chatsite.accounts.protocol import Principal
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import parse_id, public_id
from chatsite.raw import Answer, Body, EmptyAnswer, Handler, JsonAnswer, RawRequest, Route, StreamAnswer
from chatsite.scopes import Scope
from conversations import selectors, services
from conversations.acceptance import Accepted
from conversations.drafts import Branch, Remember
from conversations.errors import WaitedTooLong
from conversations.follow import at_end, follow_from, open_reply, read_patiently
from conversations.models import Message, MessageStatus
from conversations.selectors import Reply
from conversations.serializers import message_data
from conversations.sse import sse_events
from inference import selectors as inference_selectors
from inference import services as inference_services
from inference.protocol import FALLBACK_HEADER, Cursor
from quotas.headers import limited

Start = Callable[[Remember | None], Awaitable[Accepted]]


class ContinueBody(Body, frozen=True, kw_only=True):
    # What says no more than the document does is looked at where the model is known.
    max_tokens: (
        Annotated[int, Meta(extra_json_schema={"minimum": 1}, description="Default: 1024, or the room that is left.")]
        | None
    ) = None
    stream: Annotated[bool, Meta(description="Server-sent events, or the whole message once it is done.")] = True


class RegenerateBody(ContinueBody, frozen=True, kw_only=True):
    model: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    allow_fallback: Annotated[
        bool,
        Meta(
            description="Whether the smaller model that stands in for this one may reply while this one is busy or not"
            " there. The message's `model` and the header `X-Fallback-From` tell."
        ),
    ] = False


class SendBody(RegenerateBody, frozen=True, kw_only=True):
    content: Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": r"^[^\u0000]*$"})]
    parent: Annotated[str, Meta(description="Default: the last reply; null begins anew.")] | UnsetType | None = UNSET


# Handlers. Their docstrings are the operations' descriptions in the OpenAPI document.


@limited
async def send_message(request: RawRequest) -> Answer:
    """Sends a message. The reply comes as events while it is written or, with `"stream": false`, as a whole.

    A connection that closes does not end the reply: resume it from the last cursor. One reply runs at a time in a
    conversation (409 `reply_running`).
    """
    conversation_id = _id(request, "conv")
    body = request.json(SendBody)
    parent: UUID | Branch | None = Branch.ACTIVE
    if body.parent is not UNSET:
        parent = _parent(body.parent)

    async def start(remember: Remember | None) -> Accepted:
        return await services.send(
            request.principal,
            conversation_id,
            body.content,
            model=body.model,
            parent=parent,
            max_tokens=body.max_tokens,
            allow_fallback=body.allow_fallback,
            remember=remember,
        )

    return await _start_reply(request, body.stream, start)


@limited
async def continue_message(request: RawRequest) -> Answer:
    """Lets a reply go on that was stopped, has failed or reached its length limit. The events begin where it ended."""
    message_id = _id(request, "msg")
    body = _optional(request, ContinueBody)

    async def start(remember: Remember | None) -> Accepted:
        return await services.continue_reply(
            request.principal, message_id, max_tokens=body.max_tokens, remember=remember
        )

    return await _start_reply(request, body.stream, start)


@limited
async def regenerate_message(request: RawRequest) -> Answer:
    """Writes another reply to the same message. The earlier one is kept beside it."""
    message_id = _id(request, "msg")
    body = _optional(request, RegenerateBody)

    async def start(remember: Remember | None) -> Accepted:
        return await services.regenerate(
            request.principal,
            message_id,
            model=body.model,
            max_tokens=body.max_tokens,
            allow_fallback=body.allow_fallback,
            remember=remember,
        )

    return await _start_reply(request, body.stream, start)


@limited
async def stream_message(request: RawRequest) -> Answer:
    """A reply's events after a cursor, each exactly once; from the start without one.

    The cursor is the `id` of the last event that was seen, in `Last-Event-ID` or `after`. At the very end: 204.
    """
    cursor = _cursor(request)
    reply = await open_reply(request.principal, _id(request, "msg"), cursor)
    if at_end(reply, cursor):
        return EmptyAnswer(204)
    return StreamAnswer(sse_events(reply, cursor), {"X-Message-Id": public_id("msg", reply.message_id)})


@limited
async def stop_message(request: RawRequest) -> Answer:
    """Ends a reply and keeps its text. 200 once it has ended; 202 when that takes longer than 2 s. Idempotent."""
    message_id = _id(request, "msg")
    key = request.headers.get("idempotency-key")
    route = f"POST {request.scope['path']}"
    if key is not None:  # stopping is idempotent by itself: a repeat stops again, and tells what is so now
        await idempotency.begin(request.principal, route, key, request.body)
    try:
        stopped = await services.stop(request.principal, message_id)
    finally:
        if key is not None:
            await idempotency.abandon(request.principal, route, key)
    return JsonAnswer(200 if stopped.settled else 202, message_data(stopped.message))


# Starting a reply, once


async def _start_reply(request: RawRequest, stream: bool, start: Start) -> Answer:
    key = request.headers.get("idempotency-key")
    if key is None:
        return await _answer(request, stream, await start(None))
    principal, route = request.principal, f"POST {request.scope['path']}"
    replay = await idempotency.begin(principal, route, key, request.body)
    if replay is not None:
        return await _attach(request, stream, replay.answer)

    def remember(message_id: UUID, base: Cursor | None) -> None:
        answer = {"message": public_id("msg", message_id), "after": str(base) if base else None}
        idempotency.record(principal, route, key, 200, answer)

    try:
        accepted = await start(remember)
    except BaseException:
        await idempotency.abandon(principal, route, key)
        raise
    return await _answer(request, stream, accepted)


async def _attach(request: RawRequest, stream: bool, earlier: dict[str, Any]) -> Answer:
    """A repeat of a call: no second reply, but the same one."""
    message_id = parse_id("msg", earlier["message"])
    if message_id is None:
        raise NotFound
    base = Cursor.parse(earlier["after"]) if earlier["after"] else None
    reply = await open_reply(request.principal, message_id, base)
    return await _deliver(request, stream, reply, base, {})


async def _answer(request: RawRequest, stream: bool, accepted: Accepted) -> Answer:
    headers = accepted.remaining.headers()
    if accepted.instead_of is not None:
        headers = {**headers, FALLBACK_HEADER: accepted.instead_of}
    return await _deliver(request, stream, accepted.reply, accepted.base, headers)


async def _deliver(
    request: RawRequest, stream: bool, reply: Reply, base: Cursor | None, headers: dict[str, str]
) -> Answer:
    headers = {**headers, "X-Message-Id": public_id("msg", reply.message_id)}
    if stream:
        chunks = sse_events(reply, base)
        if settings.CANCEL_ON_DISCONNECT:
            chunks = _while_connected(request, reply, chunks)
        return StreamAnswer(chunks, headers)
    message = await _whole(request, reply, base)
    return JsonAnswer(202 if message.status in selectors.RUNNING else 200, message_data(message), headers)


async def _while_connected(
    request: RawRequest, reply: Reply, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The chunks; a caller that goes away stops the reply."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    finally:
        if request.disconnected.is_set():
            await inference_services.cancel(reply.request_id)


async def _whole(request: RawRequest, reply: Reply, base: Cursor | None) -> Message:
    """The message once it has ended. A caller that goes away is not waited for. Raises WaitedTooLong."""
    waiting = asyncio.create_task(_drain(reply, base))
    gone = asyncio.create_task(request.disconnected.wait())
    try:
        await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and settings.CANCEL_ON_DISCONNECT:
            await inference_services.cancel(reply.request_id)
    finally:
        waiting.cancel()
        gone.cancel()
    message, expired = await read_patiently(_read_ended, request.principal, reply.message_id)
    if expired:
        raise WaitedTooLong(message.error_message, retry_after=5)
    return message


async def _drain(reply: Reply, base: Cursor | None) -> None:
    async with aclosing(follow_from(reply, base)) as events:
        async for _ in events:
            pass


def _read_ended(principal: Principal, message_id: UUID) -> tuple[Message, bool]:
    message = selectors.read_message(principal, message_id)
    if message.status != MessageStatus.FAILED or message.request_id is None:
        return message, False
    request = inference_selectors.request_summary(message.request_id, principal.organization_id)
    return message, request is not None and request["status"] == "expired"


# Reading requests


def _id(request: RawRequest, prefix: str) -> UUID:
    found = parse_id(prefix, request.params["id"])
    if found is None:
        raise NotFound
    return found


def _parent(text: str | None) -> UUID | None:
    if text is None:
        return None
    found = parse_id("msg", text)
    if found is None:
        raise NotFound(param="parent")
    return found


def _optional(request: RawRequest, kind: type[RegenerateBody] | type[ContinueBody]) -> Any:
    return request.json(kind) if request.body else kind()


def _cursor(request: RawRequest) -> Cursor | None:
    """An EventSource that reconnects repeats its address and adds the header, so the header is newer."""
    text = request.headers.get("last-event-id") or request.query.get("after")
    if not text:
        return None
    cursor = Cursor.parse(text)
    if cursor is None:
        raise InvalidInput("This is not the id of an event.", param="after")
    return cursor


ID = "(?P<id>[^/]+)"


def _route(method: str, pattern: str, handler: Handler) -> Route:
    return Route((method,), re.compile(pattern), handler, Scope.READ if method == "GET" else Scope.CHAT)


SEND = _route("POST", f"/v1/conversations/{ID}/messages", send_message)
STREAM = _route("GET", f"/v1/messages/{ID}/stream", stream_message)
STOP = _route("POST", f"/v1/messages/{ID}/stop", stop_message)
CONTINUE = _route("POST", f"/v1/messages/{ID}/continue", continue_message)
REGENERATE = _route("POST", f"/v1/messages/{ID}/regenerate", regenerate_message)
ROUTES = [SEND, STREAM, STOP, CONTINUE, REGENERATE]
