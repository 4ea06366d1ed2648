"""As much HTTP/1.1 as a fake needs, at the lowest cost a chunk: one `write` of prepared bytes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

MAX_BODY = 64 * 1024 * 1024


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    body: bytes
    connection: "Connection"


class Connection(asyncio.Protocol):
    """A client's connection: requests one after the other, answered by `handle`.

    `on_lost` is called once when it ends while a stream runs. `writable` is false while the client does not read.
    """

    def __init__(self, handle: Callable[[Request], None], connections: set["Connection"]) -> None:
        self._handle = handle
        self._connections = connections
        self._buffer = bytearray()
        self._busy = False  # a request is being answered
        self._keep = True
        self.transport: asyncio.Transport
        self.writable = True
        self.on_lost: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")  # uvloop's has another base
        self.transport = transport  # type: ignore[assignment]
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.on_writable is not None:
            self.on_writable()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next_request()

    def _next_request(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        method, target, _ = first.split(" ", 2)
        self._keep = headers.get("connection", "").lower() != "close"
        if length > MAX_BODY or "transfer-encoding" in headers:
            self._keep = False
            self.answer(411, {"detail": "Length Required"})
            return
        if headers.get("expect") and len(self._buffer) == end + 4:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        self._busy = True
        self._handle(Request(method, target.partition("?")[0], body, self))

    def answer(self, status: int, body: object = b"", content_type: str = "application/json") -> None:
        """A whole response; `body` is bytes or is made into JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        kind = f"content-type: {content_type}\r\n" if data else ""
        phrase = HTTPStatus(status).phrase
        head = f"HTTP/1.1 {status} {phrase}\r\nserver: fake\r\ncontent-length: {len(data)}\r\n{kind}\r\n"
        self.transport.write(head.encode() + data)
        self.finished()

    def start_events(self) -> None:
        """The head of a stream of events; `chunk` frames what follows."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def end_chunks(self) -> None:
        """The end of a stream."""
        if self.transport.is_closing():  # the client has left meanwhile
            return
        self.transport.write(b"0\r\n\r\n")
        self.finished()

    def finished(self) -> None:
        """The response is written: keep the connection for the next request, or close it."""
        self._busy = False
        self.on_lost = self.on_writable = None
        if not self._keep:
            self.transport.close()
        elif self._buffer:
            self._next_request()


def chunk(data: bytes) -> bytes:
    """One frame of `transfer-encoding: chunked`."""
    return b"%x\r\n%b\r\n" % (len(data), data)
