"""Replies of the smaller model, for callers of the native API that take it, too."""

import pytest

from chatsite.database import run_db
from conversations.models import Conversation, Message
from inference.models import Model
from tests.conftest import Person
from tests.conversations.callers import Caller, conv, events_of, msg, uuid_of
from tests.inference.runner.conftest import House, big, house, model, up
from tests.waiting import wait_until

__all__ = ["big", "house", "model"]


@pytest.fixture
async def path(house: House, big: Model, person: Person) -> str:
    """Of a conversation with the large model, which has no engine; the smaller one's is up."""
    conversation = await run_db(
        lambda: Conversation.objects.create(user=person.user, organization=person.organization, model=big)
    )
    await up(house)
    return f"/v1/conversations/{conv(conversation.id)}/messages"


async def test_the_smaller_model_replies_and_the_answer_says_so(house: House, path: str) -> None:
    caller = Caller(house.person.headers)
    body = {"content": "Hello", "max_tokens": 5, "allow_fallback": True}
    answer = await caller.call("POST", path, {**body, "stream": False})
    assert answer.status == 200, answer.body
    assert answer.headers["x-fallback-from"] == "big"
    assert answer.json()["model"] == house.model.name
    streamed = await caller.call("POST", path, body)
    assert streamed.headers["x-fallback-from"] == "big"
    assert events_of(streamed.body)[-1].type == "done"
    reply = await run_db(Message.objects.get, id=uuid_of(streamed.headers["x-message-id"]))
    assert reply.model_id == house.model.name
    assert (await run_db(Conversation.objects.get)).model_id == "big"  # the next message asks for it again
    assert await run_db(lambda: Message.objects.filter(role="user").count()) == 2


async def test_another_reply_may_be_the_smaller_models_too(house: House, path: str) -> None:
    caller = Caller(house.person.headers)
    first = await caller.call("POST", path, {"content": "Hello", "allow_fallback": True, "stream": False})
    again = f"/v1/messages/{first.json()['id']}/regenerate"
    answer = await caller.call("POST", again, {"allow_fallback": True, "stream": False, "max_tokens": 5})
    assert (answer.status, answer.json()["model"]) == (200, house.model.name)
    assert answer.headers["x-fallback-from"] == "big"
    assert answer.json()["id"] != first.json()["id"]


async def test_who_does_not_allow_it_waits(house: House, path: str) -> None:
    caller = Caller(house.person.headers)
    async with caller.open("POST", path, {"content": "Hello"}) as sent:
        await wait_until(lambda: sent.received.status == 200)
        assert "x-fallback-from" not in sent.received.headers
        reply = await run_db(Message.objects.get, role="assistant")
        assert (reply.model_id, reply.status, msg(reply.id)) == (
            "big",
            "pending",
            sent.received.headers["x-message-id"],
        )
    await caller.call("POST", f"/v1/messages/{msg(reply.id)}/stop")
