"""Calls an ASGI application as a server would, without a socket: sends a request, collects the answer, hangs up."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import PATIENCE_SECONDS


@dataclass
class Answer:
    """What the application has sent so far."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    finished: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """A request in progress: `await answer()` for all of it, or look at `received` while it streams and `hang_up()`."""

    def __init__(self, app: Any, scope: Mapping[str, Any], body: bytes) -> None:
        self.received = Answer()
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.task = asyncio.create_task(app(dict(scope), self._incoming.get, self._send))

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.received.status = message["status"]
            self.received.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            if message.get("body"):
                self.received.chunks.append(message["body"])
            self.received.finished = not message.get("more_body", False)

    def hang_up(self) -> None:
        """The caller closes its connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def answer(self, within: float = PATIENCE_SECONDS) -> Answer:
        async with asyncio.timeout(within):
            await self.task
        return self.received


def http_scope(method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> dict[str, Any]:
    """An ASGI scope for `path`, which may carry a query."""
    path, _, query = path.partition("?")
    fields = {"host": "testserver", **{name.lower(): value for name, value in (headers or {}).items()}}
    if body:
        fields.setdefault("content-length", str(len(body)))
        fields.setdefault("content-type", "application/json")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
    }


@asynccontextmanager
async def exchange(
    app: Any,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    json_body: Any = None,
    body: bytes = b"",
) -> AsyncIterator[Exchange]:
    """Starts a request; at the end the caller is gone and the application's task has ended."""
    data = json.dumps(json_body).encode() if json_body is not None else body
    running = Exchange(app, http_scope(method, path, headers, data), data)
    try:
        yield running
    finally:
        running.hang_up()
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)


async def call(
    app: Any,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    json_body: Any = None,
    body: bytes = b"",
) -> Answer:
    """One request and its whole answer."""
    async with exchange(app, method, path, headers=headers, json_body=json_body, body=body) as running:
        return await running.answer()
