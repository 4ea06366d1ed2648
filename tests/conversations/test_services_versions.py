"""Regenerating, choosing, continuing and stopping replies, without an engine."""

import pytest

from chatsite.database import run_db
from chatsite.errors import InvalidInput
from conversations import services
from conversations.errors import NotContinuable
from conversations.models import Conversation
from inference.models import Model, Request
from inference.protocol import Usage
from tests.conftest import Person
from tests.conversations.callers import ended, prompt_ids
from tests.conversations.written import get, prompt_text, reload, say


async def test_s16_regenerate_adds_a_version_and_keeps_the_other(
    person: Person, conversation: Conversation, model: Model
) -> None:
    first = await say(person, conversation, "Hello", "One")
    accepted = await services.regenerate(person.principal, first.id)
    assert accepted.user_message_id == first.parent_id
    second = await ended(accepted.message_id, "Two")
    assert (await get(first.id)).content == "One"
    assert second.parent_id == first.parent_id
    assert (await reload(conversation)).active_leaf_id == second.id
    assert "One" not in await prompt_text(accepted, model)


async def test_s16_a_version_can_be_chosen(person: Person, conversation: Conversation) -> None:
    first = await say(person, conversation, "Hello", "One")
    after = await say(person, conversation, "Go on", "More")
    second = await services.regenerate(person.principal, first.id)
    await ended(second.message_id, "Two")
    await services.choose_version(person.principal, first.id)
    assert (await reload(conversation)).active_leaf_id == after.id
    await services.choose_version(person.principal, second.message_id)
    assert (await reload(conversation)).active_leaf_id == second.message_id


async def test_only_replies_can_be_regenerated(person: Person, conversation: Conversation) -> None:
    reply = await say(person, conversation, "Hello")
    with pytest.raises(InvalidInput):
        await services.regenerate(person.principal, reply.parent_id)  # type: ignore[arg-type]


async def test_s15_continue_joins_text_and_tokens_exactly(
    person: Person, conversation: Conversation, model: Model
) -> None:
    stopped = await say(person, conversation, "Hello", "Once upon", status="cancelled", reason="cancelled", ids=[7, 8])
    first = await prompt_ids(stopped.request_id)
    accepted = await services.continue_reply(person.principal, stopped.id)
    assert accepted.message_id == stopped.id
    assert await prompt_ids(accepted.request_id) == [*first, 7, 8]
    request = await run_db(Request.objects.get, id=accepted.request_id)
    assert (request.base_tokens, request.base_chars) == (2, len("Once upon"))
    waiting = await get(stopped.id)
    assert (waiting.status, waiting.content, waiting.request_id) == ("pending", "Once upon", accepted.request_id)
    done = await ended(stopped.id, " a time", ids=[9])
    assert (done.content, done.status, bytes(done.token_ids)) == (
        "Once upon a time",
        "complete",
        b"\7\0\0\0\x08\0\0\0\x09\0\0\0",
    )
    usage = Usage(done.usage_input, done.usage_cached, done.usage_output)
    assert usage == Usage(len(first), 0, 3)  # the prompt once, each token of the text once


@pytest.mark.parametrize(
    ("status", "reason", "allowed"),
    [
        ("succeeded", "stop", False),
        ("succeeded", "length", True),
        ("cancelled", "cancelled", True),
        ("failed", "", True),
    ],
)
async def test_what_can_be_continued(
    person: Person, conversation: Conversation, status: str, reason: str, allowed: bool
) -> None:
    reply = await say(person, conversation, "Hello", "Text", status=status, reason=reason)
    if allowed:
        await services.continue_reply(person.principal, reply.id)
    else:
        with pytest.raises(NotContinuable):
            await services.continue_reply(person.principal, reply.id)


async def test_a_reply_that_was_answered_cannot_be_continued(person: Person, conversation: Conversation) -> None:
    reply = await say(person, conversation, "Hello", "Text", status="cancelled", reason="cancelled")
    await say(person, conversation, "Next")
    with pytest.raises(NotContinuable):
        await services.continue_reply(person.principal, reply.id)


async def test_s11_s14_a_stop_before_the_first_token_settles_at_once(
    person: Person, conversation: Conversation
) -> None:
    accepted = await services.send(person.principal, conversation.id, "Hello")
    stopped = await services.stop(person.principal, accepted.message_id)
    assert stopped.settled
    assert (stopped.message.status, stopped.message.finish_reason, stopped.message.content) == (
        "stopped",
        "cancelled",
        "",
    )
    again = await services.stop(person.principal, accepted.message_id)
    assert again.settled and again.message.status == "stopped"
    await services.send(person.principal, conversation.id, "The composer is usable at once")
