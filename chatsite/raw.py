"""Plain ASGI routes ahead of Django, for what streams or is called most: a Django view costs 1.7 ms of CPU, this 0.2.

The wrapper does for them what Django's middleware and views do elsewhere: host check, authentication, CSRF for
sessions, size and type of the body, request id, log line, error mapping. It also notices at once when the caller has
gone.
"""

import asyncio
import io
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
import structlog
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http.request import split_domain_port, validate_host
from django.urls import Resolver404, resolve
from django.utils.module_loading import import_string

from chatsite import error_responses, logs, scopes
from chatsite.answers import Answer, EmptyAnswer, JsonAnswer, StreamAnswer, encode_json, sse_event
from chatsite.csrf import SAFE_METHODS, require_csrf
from chatsite.errors import AppError, InvalidInput, MethodNotAllowed, TooLarge, UnsupportedMedia
from chatsite.json_values import find_fault

__all__ = [
    "Answer",
    "Body",
    "BodyTimeout",
    "EmptyAnswer",
    "Handler",
    "JsonAnswer",
    "RawRequest",
    "RawRouter",
    "Route",
    "StreamAnswer",
    "sse_event",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]  # called with scope, receive, send
T = TypeVar("T")

BODY_SECONDS = 20.0  # a body that takes longer to arrive is refused
KEEPALIVE_SECONDS = 15.0
KEEPALIVE = b": \n\n"
STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
HEAD = "HEAD"
CLIENT_GONE = 499  # in the log only
_FIELD = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`")
log = structlog.stdlib.get_logger(__name__)


class BodyTimeout(InvalidInput):
    """The body did not arrive in time."""

    code = "request_timeout"
    status = 408


class Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of what routes read with `RawRequest.json`: an unknown field is an error, not a typo passed over."""


class Disconnect(asyncio.Event):
    """Set when the caller has gone, or the exchange is over in any other way."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> None:
        """Calls it as soon as the caller has gone; at once, when that is so already."""
        if self.is_set():
            callback()
        else:
            self._callbacks.append(callback)

    def set(self) -> None:
        super().set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request that may be served: its caller is known, its body is here."""

    scope: Scope
    principal: Any  # an accounts.protocol.Principal; accounts is a room above this one
    params: Mapping[str, str]  # the pattern's named groups
    headers: Mapping[str, str]  # lower-case names
    query: Mapping[str, str]
    request_id: str
    body: bytes
    disconnected: Disconnect = field(default_factory=Disconnect)

    def json(self, kind: type[T]) -> T:
        """The body as `kind` (a `Body`, or what msgspec decodes). Raises InvalidInput, with the field as `param`."""
        try:
            decoded: T = _decoder(kind).decode(self.body)  # type: ignore[arg-type]
        except msgspec.ValidationError as error:
            raise _invalid_field(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"The body is not valid JSON: {error}.") from error
        except RecursionError as error:
            raise InvalidInput("The body is nested too deeply.") from error
        if (fault := find_fault(self.body, decoded)) is not None:
            raise InvalidInput(f"Invalid value for '{fault.path}': {fault.reason}.", param=fault.path or None)
        return decoded


Handler = Callable[[RawRequest], Awaitable[Answer]]


@dataclass(frozen=True)
class Route:
    """Methods and a pattern, which must match the whole path, who serves them, and what a key needs to call them."""

    methods: Sequence[str]
    pattern: re.Pattern[str]
    handler: Handler
    scope: scopes.Scope  # without a default: a route that forgot it would be open to every key
    csrf: bool = True
    openai: bool = False  # errors in that API's form, not as problems

    @cached_property
    def name(self) -> str:
        """The pattern as people write it, for the log: `/v1/messages/{id}/stream`."""
        return re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", self.pattern.pattern).strip("^$").removesuffix("\\Z")

    @cached_property
    def allowed(self) -> frozenset[str]:
        """HEAD is answered as GET is, without the body."""
        return frozenset(self.methods) | ({HEAD} if "GET" in self.methods else set())


class RawRouter:
    """The ASGI application: the routes first, then `fallback`, to which also go other methods of the same paths."""

    def __init__(self, routes: Sequence[Route], fallback: App) -> None:
        self.routes = tuple(routes)
        self.fallback = fallback

    @cached_property
    def authenticate(self) -> Callable[[Scope], Awaitable[Any]]:
        """From the settings, because accounts is a room above this one."""
        function: Callable[[Scope], Awaitable[Any]] = import_string(settings.RAW_AUTHENTICATOR)
        return function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, method = scope["path"], scope["method"]
            others: list[Route] = []
            for route in self.routes:
                if match := route.pattern.fullmatch(path):
                    if method in route.allowed:
                        await _Exchange(self, route, match.groupdict(), scope, receive, send).serve()
                        return
                    others.append(route)
            if others and not _django_serves(path):
                allowed = ", ".join(sorted(set().union(*(route.allowed for route in others))))
                await _Exchange(self, others[0], {}, scope, receive, send).refuse(_not_allowed(allowed))
                return
        await self.fallback(scope, receive, send)


class _Exchange:
    """One request on its way through the wrapper."""

    def __init__(
        self, router: RawRouter, route: Route, params: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.router = router
        self.route = route
        self.params = params
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.request_id = logs.accept_request_id(self.headers.get("x-request-id"))
        self.disconnected = Disconnect()
        self.gone: asyncio.Task[None] | None = None  # awaits the disconnect
        self.status = CLIENT_GONE
        self.sent_at = 0.0

    async def serve(self) -> None:
        started = time.perf_counter()
        logs.begin_request(self.request_id)
        try:
            await self._send_answer(await self._answer())
        finally:
            if self.gone is not None:
                self.gone.cancel()
            self.disconnected.set()  # a task that was cancelled has no caller either
            logs.log_access(self.scope["method"], self.route.name, self.status, time.perf_counter() - started)

    async def refuse(self, error: AppError) -> None:
        """Answers with an error without asking the route."""
        logs.begin_request(self.request_id)
        await self._send_answer(error)

    async def _answer(self) -> Answer | AppError:
        try:
            request = await self._request()
            self.gone = asyncio.create_task(self._await_disconnect())
            return await self.route.handler(request)
        except Exception as error:  # the edge: whatever it is becomes an answer, and what is unexpected is logged there
            return error_responses.convert(error)

    async def _request(self) -> RawRequest:
        """Everything that is checked before the handler sees the request."""
        self._check_host()
        caller = await self.router.authenticate(self.scope)
        scopes.require(caller.principal.scopes, self.route.scope)
        method = self.scope["method"]
        if caller.by_cookie and self.route.csrf and method not in SAFE_METHODS:
            require_csrf(ASGIRequest(self.scope, io.BytesIO()))
        body = b"" if method in SAFE_METHODS else await self._body()
        query = (
            dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))
            if self.scope["query_string"]
            else {}
        )
        return RawRequest(
            self.scope, caller.principal, self.params, self.headers, query, self.request_id, body, self.disconnected
        )

    def _check_host(self) -> None:
        domain, _ = split_domain_port(self.headers.get("host", ""))
        if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
            raise InvalidInput("This site does not answer to that host name.", param="Host")

    async def _body(self) -> bytes:
        length = self.headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise InvalidInput("The Content-Length is not a number.", param="Content-Length")
        if int(length) > settings.MAX_BODY_BYTES:
            raise TooLarge(f"The body is larger than {settings.MAX_BODY_BYTES} bytes.")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._read_body()
        except TimeoutError:
            raise BodyTimeout from None
        if body and self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMedia
        return body

    async def _read_body(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise InvalidInput("The caller went away before its body had arrived.")
            piece = message.get("body", b"")
            size += len(piece)
            if size > settings.MAX_BODY_BYTES:  # sent in chunks, without a length
                raise TooLarge(f"The body is larger than {settings.MAX_BODY_BYTES} bytes.")
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _await_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            continue
        self.disconnected.set()

    async def _send_answer(self, answer: Answer | AppError) -> None:
        if isinstance(answer, AppError):
            refusal = (
                error_responses.openai_answer(answer)
                if self.route.openai
                else error_responses.problem(answer, self.request_id)
            )
            await self._send_whole(refusal.status, refusal.headers, refusal.body)
        elif isinstance(answer, JsonAnswer):
            headers = {"Content-Type": "application/json", **answer.headers}
            await self._send_whole(answer.status, headers, encode_json(answer.payload))
        elif isinstance(answer, EmptyAnswer):
            await self._send_whole(answer.status, answer.headers, b"")
        else:
            await self._send_stream(answer)

    async def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        encoded.append((b"x-request-id", self.request_id.encode()))
        encoded.append((b"x-content-type-options", b"nosniff"))
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {} if status == 204 else {"Content-Length": str(len(body))}
        await self._send_head(status, {**headers, **length})
        await self.send({"type": "http.response.body", "body": b"" if self.scope["method"] == HEAD else body})

    async def _send_stream(self, answer: StreamAnswer) -> None:
        """Runs the stream in a task of its own, which ends when the caller goes away, and not a token later."""
        await self._send_head(200, {**STREAM_HEADERS, **answer.headers})
        if self.scope["method"] == HEAD:  # what nobody has begun to read needs no end
            await self.send({"type": "http.response.body", "body": b""})
            return
        pump = asyncio.create_task(self._pump(answer))
        keepalive = asyncio.create_task(self._keep_alive())
        try:
            await asyncio.wait([pump, self.gone] if self.gone else [pump], return_when=asyncio.FIRST_COMPLETED)
        finally:
            keepalive.cancel()
            finished = pump.done()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        if finished:
            await self.send({"type": "http.response.body", "body": b""})
        else:
            self.status = CLIENT_GONE

    async def _pump(self, answer: StreamAnswer) -> None:
        try:
            async with aclosing(answer.chunks) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    await self._send_chunk(chunk)
        except Exception as error:  # the edge again: the headers are out, so the error is the stream's last event
            converted = error_responses.convert(error)
            if self.route.openai:
                await self._send_chunk(sse_event(error_responses.openai_error(converted)))
            else:
                await self._send_chunk(
                    sse_event(error_responses.error_event(answer.headers.get("X-Message-Id"), converted))
                )

    async def _send_chunk(self, chunk: bytes) -> None:
        self.sent_at = time.monotonic()
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _keep_alive(self) -> None:
        """A comment after each 15 s of silence: proxies drop what looks dead, and clients notice a dead line by it."""
        self.sent_at = time.monotonic()
        while True:
            quiet = time.monotonic() - self.sent_at
            if quiet >= KEEPALIVE_SECONDS:
                await self._send_chunk(KEEPALIVE)
                quiet = 0.0
            await asyncio.sleep(KEEPALIVE_SECONDS - quiet)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _invalid_field(text: str) -> InvalidInput:
    """msgspec's message, with the field's path taken out of it and put into `param`."""
    place = _FIELD.search(text)
    message = text[: place.start()] if place else text
    path = place["path"] if place else ""
    if unknown := _UNKNOWN_FIELD.search(message):
        path = f"{path}.{unknown['name']}" if path else unknown["name"]
    elif missing := re.search(r"missing required field `([^`]*)`", message):
        path = f"{path}.{missing[1]}" if path else missing[1]
    return InvalidInput(f"{message}.", param=path or None)


def _not_allowed(allowed: str) -> MethodNotAllowed:
    error = MethodNotAllowed()
    error.headers = {"Allow": allowed}
    return error


def _django_serves(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
