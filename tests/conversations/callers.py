"""Calling the native API as a program would, and ending replies as a runner would."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from chatsite.asgi import application
from chatsite.database import run_db
from chatsite.ids import parse_id, public_id
from chatsite.redis import async_client
from conversations.models import Message
from conversations.replies import MessageOwner
from inference import prompt_store
from inference.events import unpack_ids
from inference.models import Request
from inference.protocol import Outcome, Usage
from inference.redis import keys
from tests import asgi_client
from tests.asgi_client import Answer, Exchange


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: str | None
    data: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.data["type"])


def events_of(body: bytes) -> list[Event]:
    """The whole events of an answer so far."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in lines:
            found.append(Event(lines.get("id"), json.loads(lines["data"])))
    return found


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.data["text"] for event in events if event.type == "token")


@dataclass(frozen=True)
class Caller:
    """Somebody who calls, with the headers that say who."""

    headers: Mapping[str, str]

    async def call(self, method: str, path: str, json_body: Any = None, **headers: str) -> Answer:
        """`headers`: underscores stand for hyphens."""
        return await asgi_client.call(
            application, method, path, headers={**self.headers, **spelled(headers)}, json_body=json_body
        )

    async def send_bytes(self, method: str, path: str, body: bytes, **headers: str) -> Answer:
        return await asgi_client.call(
            application, method, path, headers={**self.headers, **spelled(headers)}, body=body
        )

    @asynccontextmanager
    async def open(self, method: str, path: str, json_body: Any = None, **headers: str) -> AsyncIterator[Exchange]:
        """An answer that is still coming; at the end the caller hangs up."""
        async with asgi_client.exchange(
            application, method, path, headers={**self.headers, **spelled(headers)}, json_body=json_body
        ) as running:
            yield running


def spelled(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def conv(value: UUID) -> str:
    return public_id("conv", value)


def msg(value: UUID) -> str:
    return public_id("msg", value)


def uuid_of(text: str) -> UUID:
    prefix, _, _ = text.partition("_")
    found = parse_id(prefix, text)
    assert found is not None, text
    return found


def end_reply(
    message_id: UUID,
    text: str = "Fine.",
    *,
    status: str = "succeeded",
    reason: str = "stop",
    ids: list[int] | None = None,
    error: tuple[str, str] = ("", ""),
) -> Message:
    """Ends a running reply as its runner would; `text` and `ids` are what its last request added."""
    message = Message.objects.get(id=message_id)
    request = Request.objects.get(id=message.request_id)
    MessageOwner.claimed(message.id, request.id)
    ids = list(range(100, 100 + len(text))) if ids is None else ids
    MessageOwner.finished(
        Outcome(
            request_id=request.id,
            owner_id=message.id,
            status=status,
            finish_reason=reason,
            error_code=error[0],
            error_message=error[1],
            text=text,
            token_ids=ids,
            base_tokens=request.base_tokens,
            usage=Usage(request.prompt_tokens, 0, len(ids)),
        )
    )
    Request.objects.filter(id=request.id).update(status=status)
    return Message.objects.get(id=message_id)


async def ended(message_id: UUID, text: str = "Fine.", **changes: Any) -> Message:
    return await run_db(lambda: end_reply(message_id, text, **changes))


async def prompt_ids(request_id: UUID | None) -> list[int]:
    """The prompt that waits for a runner."""
    assert request_id is not None
    packed = await async_client().get(keys.prompt(request_id))
    return unpack_ids(prompt_store.decode(packed).token_ids)
