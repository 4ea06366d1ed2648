"""The only HTTP to an engine, vLLM's OpenAI server. The transport's errors are translated here, and nowhere else, to
the tree of `vllm_errors`.
"""

import asyncio
import contextlib
import socket
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

from inference.vllm_errors import (
    EngineError,
    EngineGarbage,
    EngineMisconfigured,
    EngineRejected,
    EngineStalled,
    EngineUnavailable,
    answered,
)
from inference.vllm_wire import (
    Delta,
    EngineCall,
    EngineStats,
    ErrorBody,
    EventReader,
    Models,
    ServedModel,
    TokenLogprob,
    Tokens,
    parse_stats,
)

__all__ = [
    "Delta",
    "Engine",
    "EngineCall",
    "EngineError",
    "EngineGarbage",
    "EngineMisconfigured",
    "EngineRejected",
    "EngineStalled",
    "EngineStats",
    "EngineStream",
    "EngineUnavailable",
    "ServedModel",
    "TokenLogprob",
    "new_session",
]

T = TypeVar("T")

CONNECT_SECONDS = 3.0
LOOK_SECONDS = 2.0  # for what is asked again and again: an engine that works answers at once
CALL_SECONDS = 10.0  # for what else is not a stream
# Less than the 5 s after which the engine's server closes an idle connection: a request on one that is just being
# closed would fail.
KEEPALIVE_SECONDS = 3.0
DRAIN_SECONDS = 1.0  # after the last event, for the end of the response
MAX_ERROR_BYTES = 64 * 1024
_JSON = {"Content-Type": "application/json"}


def new_session() -> ClientSession:
    """The session that all engines of a process share. Call it inside the event loop, close it at the end."""
    connector = TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=_keepalive_socket)
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    return ClientSession(connector=connector, timeout=timeout, headers={"Accept-Encoding": "identity"})


class Engine:
    """One replica, at `base_url`."""

    def __init__(self, base_url: str, session: ClientSession) -> None:
        self.base_url = base_url.rstrip("/")
        self._session = session
        self._streams: weakref.WeakSet[EngineStream] = weakref.WeakSet()

    def stream(
        self, call: EngineCall, *, first_token_timeout: float = 60.0, idle_timeout: float = 20.0
    ) -> "EngineStream":
        """Run a prompt. Nothing is sent before the first `__anext__`. Timeouts in seconds."""
        stream = EngineStream(self._session, self.base_url, call, first_token_timeout, idle_timeout)
        self._streams.add(stream)
        return stream

    async def health(self) -> bool:
        """Whether the engine says that it works. Only requests show whether it does.

        Raises EngineStalled where it says nothing in time: it may be busy.
        """
        try:
            await self._call("GET", "/health", within=LOOK_SECONDS)
        except EngineStalled:
            raise
        except EngineError:
            return False
        return True

    async def served_models(self) -> list[ServedModel]:
        """What it serves, its own name for each first. Raises EngineError."""
        answer = _decoded(await self._call("GET", "/v1/models", within=LOOK_SECONDS), Models)
        return [ServedModel(model.id, model.max_model_len) for model in answer.data]

    async def tokenize(self, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The prompt's ids by the engine's own template. A control token spelled in a message is taken for one."""
        body = msgspec.json.encode({"model": model, "messages": messages, "add_generation_prompt": True})
        return _decoded(await self._call("POST", "/tokenize", body), Tokens).tokens

    async def tokenize_text(self, model: str, text: str) -> list[int]:
        """A bare text's ids, nothing added. A control token spelled in it is taken for one."""
        body = msgspec.json.encode({"model": model, "prompt": text, "add_special_tokens": False})
        return _decoded(await self._call("POST", "/tokenize", body), Tokens).tokens

    async def stats(self) -> EngineStats:
        """Its load, from /metrics. Raises EngineError."""
        stats = parse_stats(await self._call("GET", "/metrics", within=LOOK_SECONDS))
        if stats is None:
            raise EngineGarbage("The engine's /metrics do not tell its load.")
        return stats

    async def close(self) -> None:
        """End all streams of this engine. The session belongs to the caller."""
        for stream in list(self._streams):
            stream.close()

    async def _call(self, method: str, path: str, body: bytes | None = None, within: float = CALL_SECONDS) -> bytes:
        try:
            async with (
                asyncio.timeout(within),
                self._session.request(
                    method, self.base_url + path, data=body, headers=_JSON, allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    raise await _refusal(response)
                return await response.read()
        except ClientError as error:
            raise _unreachable(error) from error
        except TimeoutError as error:
            raise EngineStalled from error
        except OSError as error:
            raise _unreachable(error) from error


class EngineStream:
    """The tokens of one call, as an async iterator. Raises EngineError, after what came before it was yielded.

    `close` may be called from any task, at any time: it closes the response, so that the engine aborts the sequence,
    and the iteration ends. A cancelled task and an error do the same. Use it as an async context manager, and leaving
    the loop early does so too.
    """

    def __init__(
        self, session: ClientSession, base_url: str, call: EngineCall, first_token_timeout: float, idle_timeout: float
    ) -> None:
        self._session = session
        self._url = base_url + "/v1/completions"
        self._body = call.body()
        self._left = first_token_timeout  # seconds that the next token may take yet: of waiting, not of our own work
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[ClientResponse] | None = None
        self._response: ClientResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._waiting = False  # for the engine; not while our own reader takes its time
        self._stalled = False
        self._closed = False
        self._events = EventReader(len(call.prompt_ids), call.max_tokens)

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __anext__(self) -> Delta:
        try:
            if self._closed:
                raise StopAsyncIteration
            if self._response is None:
                self._response = await self._open()
            if self._events.complete:
                await self._drain()
                raise StopAsyncIteration
            while self._events.failure is None:
                received = self._events.received
                delta = self._events.feed(await self._wait(self._response.content.readany()))
                if self._events.received > received:  # whatever else it sends does not show that it gets on
                    self._left = self._idle_timeout
                if delta is not None:
                    return delta
            raise self._events.failure
        except BaseException:
            self.close()
            raise

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """End the call at once. Nothing more is yielded."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._interrupt()

    async def _open(self) -> ClientResponse:
        body, self._body = self._body, b""  # with a long prompt it is most of what a stream takes
        post = self._session.post(self._url, data=body, headers=_JSON, allow_redirects=False)
        self._opening = self._loop.create_task(_awaited(post))
        response = await self._wait(self._opening)
        if response.status != 200:
            self._response = response
            raise await self._wait(_refusal(response))
        return response

    async def _wait(self, engine: Awaitable[T]) -> T:
        """What `engine` gives, within the time left. Raises EngineError; StopAsyncIteration after `close`."""
        self._deadline = self._loop.time() + self._left
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(self._deadline)
        self._waiting = True
        try:
            result = await engine
            if not self._closed and not self._stalled:
                return result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if (task is not None and task.cancelling()) or not (self._closed or self._stalled):
                raise
        except (ClientError, OSError, RuntimeError) as error:  # RuntimeError: aiohttp's for a connection that is gone
            if not self._closed and not self._stalled:
                raise _unreachable(error) from error
        finally:
            self._waiting = False
            self._left = self._deadline - self._loop.time()
        if self._stalled:
            raise EngineStalled
        raise StopAsyncIteration

    def _set_timer(self, when: float) -> None:
        """One timer for the stream, moved on when it fires: a new one for each read would cost more than the read."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._waiting:  # our own reader takes its time; the next read sets a timer
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
            return
        self._stalled = True
        self._interrupt()

    def _interrupt(self) -> None:
        """Close the response, or what is to become it, which wakes up who waits for it."""
        opening = self._opening
        if self._response is not None:
            self._response.close()
        elif opening is not None and not opening.cancel() and not opening.cancelled() and not opening.exception():
            opening.result().close()

    async def _drain(self) -> None:
        """Read the end of the response, so that its connection can be used again."""
        self._left = DRAIN_SECONDS
        with contextlib.suppress(EngineError):
            data = b"more"
            while data and self._response is not None:
                data = await self._wait(self._response.content.readany())


async def _awaited(request: Awaitable[T]) -> T:
    return await request


async def _refusal(response: ClientResponse) -> EngineError:
    """The error that an answer other than 200 stands for."""
    body = b""
    while len(body) < MAX_ERROR_BYTES and (data := await response.content.readany()):
        body += data
    try:
        message = msgspec.json.decode(body, type=ErrorBody).error.message
    except msgspec.DecodeError:  # not the engine's own words: a proxy's, say
        message = ""
    return answered(response.status, message)


def _unreachable(error: Exception) -> EngineUnavailable:
    return EngineUnavailable(f"The engine cannot be reached: {error or type(error).__name__}")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise EngineGarbage(f"The engine's answer cannot be read: {error}") from error


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a machine that is gone, while a stream waits for its next token: after 30 s."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPALIVE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # macOS has another name for the first
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
