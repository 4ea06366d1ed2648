"""What a page does beside sending, and what its user's other pages hear of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

import pytest

from chatsite import notices
from chatsite.database import run_db
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import new_id
from conversations import services
from conversations.models import Conversation, Message
from tests.conftest import Person
from tests.conversations.callers import ended
from tests.waiting import wait_until


@asynccontextmanager
async def hearing(person: Person) -> AsyncIterator[list[UUID]]:
    heard: list[UUID] = []

    async def collect(subscription: notices.Subscription) -> None:
        async for what in subscription:
            heard.append(what)

    async with notices.subscribed(person.user.id) as subscription:
        task = asyncio.create_task(collect(subscription))
        yield heard
        task.cancel()


async def test_s13_every_page_hears_what_happens_to_a_conversation(person: Person, conversation: Conversation) -> None:
    async with hearing(person) as heard:
        await run_db(partial(services.update_conversation, person.principal, conversation.id, title="Tides"))
        await wait_until(lambda: heard == [conversation.id])
        heard.clear()
        await services.delete_conversation(person.principal, conversation.id)
        await wait_until(lambda: heard == [conversation.id])


async def test_every_page_hears_that_a_reply_has_ended(person: Person, conversation: Conversation) -> None:
    async with hearing(person) as heard:
        accepted = await services.send(person.principal, conversation.id, "Hello")
        await services.stop(person.principal, accepted.message_id)
        await wait_until(lambda: accepted.message_id in heard)


async def test_a_reply_is_seen_once_and_only_as_the_last(person: Person, conversation: Conversation) -> None:
    accepted = await services.send(person.principal, conversation.id, "Hello")
    seen = (person.principal, conversation.id, accepted.request_id)
    assert not await services.mark_seen(*seen)  # it still runs
    await ended(accepted.message_id)
    async with hearing(person) as heard:
        assert await services.mark_seen(*seen)
        await wait_until(lambda: heard == [conversation.id])
    assert not await services.mark_seen(*seen)
    assert not await services.mark_seen(person.principal, conversation.id, new_id())
    assert (await run_db(Conversation.objects.get, id=conversation.id)).seen_request == accepted.request_id
    again = await services.send(person.principal, conversation.id, "And again")
    await ended(again.message_id)
    assert not await services.mark_seen(*seen)  # there is a newer one


async def test_s32_nobody_sees_or_judges_what_is_not_theirs(
    person: Person, stranger: Person, conversation: Conversation
) -> None:
    accepted = await services.send(person.principal, conversation.id, "Hello")
    await ended(accepted.message_id)
    assert not await services.mark_seen(stranger.principal, conversation.id, accepted.request_id)
    with pytest.raises(NotFound):
        await run_db(services.give_feedback, stranger.principal, accepted.message_id, 1)
    assert accepted.user_message_id is not None
    with pytest.raises(NotFound):
        await services.edit(stranger.principal, accepted.user_message_id, "Mine now")


async def test_feedback_is_for_finished_replies(person: Person, conversation: Conversation) -> None:
    accepted = await services.send(person.principal, conversation.id, "Hello")
    with pytest.raises(InvalidInput):
        await run_db(services.give_feedback, person.principal, accepted.message_id, 1)
    await ended(accepted.message_id)
    for value in (1, -1, 0):
        await run_db(services.give_feedback, person.principal, accepted.message_id, value)
        assert (await run_db(Message.objects.get, id=accepted.message_id)).feedback == value
    for message, value in ((accepted.message_id, 2), (accepted.user_message_id, 1)):
        with pytest.raises(InvalidInput):
            await run_db(services.give_feedback, person.principal, message, value)
