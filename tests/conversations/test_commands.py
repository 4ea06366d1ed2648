"""What a page says is read strictly, and what it sends twice is written once."""

import asyncio
from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.errors import IdempotencyInFlight, IdempotencyMismatch, InvalidInput, NotFound, RateLimited
from chatsite.ids import new_id
from conversations import commands, services
from conversations.commands import Hello, Send, message_id, place_of, request_id
from conversations.models import Conversation, Message
from inference.errors import UnknownModel
from inference.models import Model
from tests.conftest import Person
from tests.conversations.callers import ended, msg


async def texts(conversation: Conversation) -> list[str]:
    rows = conversation.messages.order_by("created_at", "id")
    return await run_db(lambda: list(rows.values_list("content", flat=True)))


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        (r'{"type": "send", "content": "a\u0000"}', "content"),
        (r'{"type": "send", "content": "a", "id": "\u0000"}', "id"),
        (r'{"type": "send", "content": "a", "model": "\u0000"}', "model"),
        (r'{"type": "feedback", "message": "m", "value": 99999999999999999999}', "value"),
    ],
)
def test_what_cannot_be_kept_is_refused(frame: str, param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        commands.decode(frame)
    assert caught.value.param == param


async def test_a_message_that_is_sent_again_is_written_once(
    person: Person, conversation: Conversation, model: Model
) -> None:
    command = Send(content="Hello", id="1", model=model.name)
    await commands.send(person.session_principal, conversation.id, command)
    await commands.send(person.session_principal, conversation.id, command)
    assert await texts(conversation) == ["Hello", ""]


async def test_a_page_that_left_meanwhile_and_sends_again_is_told_of_the_first(
    person: Person, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    send = services.send

    async def slow(*args: Any, **options: Any) -> Any:
        entered.set()
        await release.wait()
        return await send(*args, **options)

    monkeypatch.setattr(services, "send", slow)
    command = Send(content="Hello", id="1")
    first = asyncio.create_task(commands.send(person.session_principal, conversation.id, command))
    await entered.wait()
    first.cancel()  # its socket was lost
    second = asyncio.create_task(commands.send(person.session_principal, conversation.id, command))
    release.set()
    await second
    assert await texts(conversation) == ["Hello", ""]


async def test_what_is_not_decided_in_time_is_said(
    person: Person, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **options: Any) -> None:
        begun.set()
        await release.wait()

    monkeypatch.setattr(services, "send", slow)
    monkeypatch.setattr(commands, "IN_FLIGHT_SECONDS", 0.2)
    command = Send(content="Hello", id="1")
    first = asyncio.create_task(commands.send(person.session_principal, conversation.id, command))
    await begun.wait()
    with pytest.raises(IdempotencyInFlight, match="not known yet"):
        await commands.send(person.session_principal, conversation.id, command)
    release.set()
    await first


async def test_what_was_refused_may_be_sent_again_with_its_id(
    person: Person, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Send(content="Hello", id="1")
    with monkeypatch.context() as patch:

        async def refuse(*args: Any, **options: Any) -> None:
            raise RateLimited

        patch.setattr(services, "send", refuse)
        with pytest.raises(RateLimited):
            await commands.send(person.session_principal, conversation.id, command)
    await commands.send(person.session_principal, conversation.id, command)
    assert await texts(conversation) == ["Hello", ""]


async def test_another_text_with_the_same_id_is_refused(person: Person, conversation: Conversation) -> None:
    await commands.send(person.session_principal, conversation.id, Send(content="Hello", id="1"))
    with pytest.raises(IdempotencyMismatch):
        await commands.send(person.session_principal, conversation.id, Send(content="Bye", id="1"))


async def test_s16_an_edited_message_is_kept_beside_its_first_version(
    person: Person, conversation: Conversation
) -> None:
    await commands.send(person.session_principal, conversation.id, Send(content="First", id="1"))
    question, reply = await run_db(lambda: list(conversation.messages.order_by("created_at", "id")))
    await ended(reply.id)
    edit = Send(content="Second", id="2", edits=msg(question.id))
    await commands.send(person.session_principal, conversation.id, edit)
    second = await run_db(Message.objects.get, content="Second")
    assert (second.parent_id, second.role) == (None, "user")
    active = await run_db(lambda: Conversation.objects.get(id=conversation.id).active_leaf)
    assert active.parent_id == second.id
    await ended(active.id)
    await services.choose_version(person.session_principal, question.id)
    assert (await run_db(Conversation.objects.get, id=conversation.id)).active_leaf_id == reply.id
    with pytest.raises(InvalidInput):
        await commands.send(person.session_principal, conversation.id, Send(content="x", edits=msg(reply.id)))


def test_hello_is_not_trusted() -> None:
    assert place_of(Hello(message="x", request="y")).message_id is None
    assert place_of(Hello(cursor="nonsense")).cursor is None


def test_ids_are_read_strictly() -> None:
    for text in ("x", f"conv_{new_id()}", ""):
        with pytest.raises(NotFound):
            message_id(text)
    with pytest.raises(NotFound):
        request_id("x")


async def test_a_model_that_was_disabled_is_refused_by_the_name_people_know(
    person: Person, conversation: Conversation, model: Model
) -> None:
    about = {"name": "org/retired-7b", "title": "Retired", "enabled": False, "context_length": 4096}
    prices = {"price_input": 1, "price_cached": 1, "price_output": 1}
    await run_db(lambda: Model.objects.create(**about, **prices, tiers=list(model.tiers)))
    with pytest.raises(UnknownModel, match="Retired is not available any more"):
        await commands.send(
            person.session_principal, conversation.id, Send(content="Hi", id="1", model="org/retired-7b")
        )
