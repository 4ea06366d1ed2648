"""Messages that are sent to the raw routes, and what becomes of their replies."""

from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.redis import async_client
from conversations.models import Conversation, Message
from inference.redis import keys
from tests.conversations.callers import Caller, conv, uuid_of
from tests.conversations.conftest import House
from tests.fakes.engine import FakeEngine
from tests.waiting import wait_until

STREAM = "text/event-stream"


@pytest.fixture
def path(conversation: Conversation) -> str:
    return f"/v1/conversations/{conv(conversation.id)}/messages"


async def running(house: House, **options: Any) -> FakeEngine:
    """An engine and a runner."""
    engine = await house.engine(**options)
    await house.runner()
    return engine


async def get(message_id: str) -> Message:
    return await run_db(Message.objects.get, id=uuid_of(message_id))


async def started(caller: Caller, path: str, **body: Any) -> str:
    """Sends a message, hangs up at once, and returns the reply's id."""
    async with caller.open("POST", path, {"content": "Hello", **body}) as sent:
        await wait_until(lambda: sent.received.status == 200)
        return sent.received.headers["x-message-id"]


async def running_reply() -> Message:
    return await wait_until(lambda: run_db(lambda: Message.objects.filter(status="pending").first()))


async def close_log(message: Message) -> None:
    """As a runner does, once the database has the reply."""
    await async_client().xadd(keys.out(message.request_id), {"e": 1}, id="900000-1000")  # type: ignore[arg-type]


async def in_state(message_id: str, status: str) -> Message | None:
    message = await get(message_id)
    return message if message.status == status else None
