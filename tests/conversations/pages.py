"""Rows and sockets for tests of the page."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client

from chatsite.accounts.models import User
from chatsite.database import run_db
from chatsite.ids import new_id, public_id
from conversations.follow import ReplyEvent
from conversations.models import Conversation, Message
from conversations.routing import websocket_application
from conversations.selectors import Reply
from inference.models import Model
from inference.protocol import Cursor
from tests.conftest import Person
from tests.waiting import PATIENCE_SECONDS

ORIGIN = "http://testserver"


def make_model(name: str = "tiny") -> Model:
    prices = {"price_input": "0.1", "price_cached": "0.01", "price_output": "0.4"}
    return Model.objects.get_or_create(
        name=name, defaults={"title": name.title(), "context_length": 4096, "tiers": ["free", "paid"], **prices}
    )[0]


def make_conversation(person: Person, title: str = "Greetings") -> Conversation:
    return Conversation.objects.create(
        organization=person.organization, user=person.user, model=make_model(), title=title
    )


def add_turn(conversation: Conversation, question: str, answer: str, **changes: Any) -> Message:
    """A question and its reply, as the new end of the active branch; returns the reply."""
    user = Message.objects.create(
        conversation=conversation, parent_id=conversation.active_leaf_id, role="user", content=question
    )
    return add_reply(conversation, user, answer, **changes)


def add_reply(conversation: Conversation, user: Message, answer: str, **changes: Any) -> Message:
    values = {"status": "complete", "finish_reason": "stop", "request_id": new_id(), "model_id": conversation.model_id}
    reply = Message.objects.create(
        conversation=conversation, parent=user, role="assistant", content=answer, **values | changes
    )
    conversation.active_leaf = reply
    conversation.save(update_fields=["active_leaf"])
    return reply


async def in_database(function: Any, *args: Any, **kwargs: Any) -> Any:
    return await run_db(lambda: function(*args, **kwargs))


async def session_cookie(user: User) -> str:
    client = Client()
    await sync_to_async(client.force_login)(user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


class Script:
    """Stands in for `follow_from`: tests say what the reply does."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[ReplyEvent] = asyncio.Queue()
        self.cursors: list[Cursor | None] = []

    async def __call__(self, reply: Reply, cursor: Cursor | None = None) -> AsyncIterator[ReplyEvent]:
        self.cursors.append(cursor)
        while True:
            yield await self.events.get()


class Socket:
    """A page's side of its WebSocket."""

    def __init__(self, communicator: WebsocketCommunicator) -> None:
        self.communicator = communicator
        self.received: list[str] = []  # what each `until` has read
        self.frames: list[str] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.communicator.send_to(
            text_data=json.dumps({"type": kind, "headers": {"HX-Request": "true"}, **fields})
        )

    async def hello(self, message: Message | None = None, cursor: str | None = None, **fields: Any) -> None:
        """What a page that shows `message` last says."""
        about = {"message": public_id("msg", message.id), "request": str(message.request_id)} if message else {}
        await self.say("hello", **about, cursor=cursor, **fields)

    async def until(self, *texts: str, within: float = PATIENCE_SECONDS) -> str:
        """Reads frames until all of `texts` were in them; returns those frames joined."""
        seen = ""
        async with asyncio.timeout(within):
            while not all(text in seen for text in texts):
                try:
                    self.frames.append(await self.communicator.receive_from(timeout=within))
                    seen += self.frames[-1]
                except AssertionError as error:
                    raise AssertionError(f"waiting for {texts}, saw {seen!r}: {error}") from error
        self.received.append(seen)
        return seen

    async def closed(self, within: float = PATIENCE_SECONDS) -> int:
        """Reads on until the server closes; returns its code."""
        async with asyncio.timeout(within):
            while True:
                event = await self.communicator.receive_output(timeout=within)
                if event["type"] == "websocket.close":
                    return int(event["code"])

    async def silent(self) -> bool:
        return bool(await self.communicator.receive_nothing(timeout=0.15, interval=0.02))


def communicator(conversation: UUID | str, headers: Mapping[str, str]) -> WebsocketCommunicator:
    """`conversation` "": the page of a new chat."""
    name = conversation if isinstance(conversation, str) else public_id("conv", conversation)
    fields = {"host": "testserver", "origin": ORIGIN, **headers}
    encoded = [(key.encode(), value.encode()) for key, value in fields.items() if value]
    address = f"/ws/c/{name}/" if name else "/ws/"
    return WebsocketCommunicator(websocket_application, address, headers=encoded)


@asynccontextmanager
async def connected(conversation: UUID | str, user: User | None, **headers: str) -> AsyncIterator[Socket]:
    """A socket that was accepted; who may not stay is closed after that, with a code."""
    cookie = {"cookie": await session_cookie(user)} if user else {}
    found = communicator(conversation, {**cookie, **headers})
    accepted, _ = await found.connect(timeout=3)
    assert accepted
    try:
        yield Socket(found)
    finally:
        await found.disconnect(timeout=3)
