"""How a reply follows its request, in the request's own transaction."""

from typing import Any
from uuid import UUID

import pytest

from chatsite.ids import new_id
from conversations.models import Conversation, Message
from conversations.replies import MessageOwner
from inference.events import pack_ids
from inference.protocol import Outcome, Usage

REQUEST = new_id()


@pytest.fixture
def reply(conversation: Conversation) -> Message:
    """One that streams."""
    user = Message.objects.create(conversation=conversation, role="user", content="Hello", tokens=1)
    return Message.objects.create(
        conversation=conversation,
        parent=user,
        role="assistant",
        status="streaming",
        request_id=REQUEST,
        model_id=conversation.model_id,
    )


def outcome(owner_id: UUID, **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "request_id": REQUEST,
        "owner_id": owner_id,
        "status": "succeeded",
        "finish_reason": "stop",
        "error_code": "",
        "error_message": "",
        "text": "Hi.",
        "token_ids": [5, 6],
        "base_tokens": 0,
        "usage": Usage(12, 8, 2),
    }
    return Outcome(**values | changes)


def finish(reply: Message, **changes: Any) -> Message:
    MessageOwner.finished(outcome(reply.id, **changes))
    return Message.objects.get(id=reply.id)


@pytest.mark.parametrize(
    ("status", "reason", "becomes"),
    [
        ("succeeded", "stop", "complete"),
        ("succeeded", "length", "complete"),
        ("cancelled", "cancelled", "stopped"),
        ("failed", "", "failed"),
        ("expired", "", "failed"),
        ("shed", "", "failed"),
    ],
)
def test_every_end_of_a_request_is_an_end_of_its_reply(reply: Message, status: str, reason: str, becomes: str) -> None:
    done = finish(reply, status=status, finish_reason=reason, error_code="broken", error_message="It broke.")
    failed = becomes == "failed"
    assert (done.status, done.finish_reason, done.content) == (becomes, reason, "Hi.")
    assert (done.error_code, done.error_message) == (("broken", "It broke.") if failed else ("", ""))
    assert (bytes(done.token_ids), done.tokens) == (pack_ids([5, 6]), 2)
    assert (done.usage_input, done.usage_cached, done.usage_output) == (12, 8, 2)


@pytest.mark.parametrize("text", ["", " \n"])
def test_s5_a_reply_without_text_is_an_error(reply: Message, text: str) -> None:
    done = finish(reply, text=text)
    assert (done.status, done.error_code, done.finish_reason) == ("failed", "empty_reply", "")


def test_s12_a_reply_that_never_began_can_end(reply: Message) -> None:
    Message.objects.filter(id=reply.id).update(status="pending")
    done = finish(reply, status="cancelled", finish_reason="cancelled", text="", token_ids=[], usage=Usage(0, 0, 0))
    assert done.status == "stopped"


def test_s15_a_continuation_is_added_behind_what_was_there(reply: Message) -> None:
    finish(reply, status="cancelled", finish_reason="cancelled")
    later = new_id()
    Message.objects.filter(id=reply.id).update(status="pending", request_id=later)
    MessageOwner.claimed(reply.id, later)
    done = finish(reply, request_id=later, text=" There.", token_ids=[7], base_tokens=2, usage=Usage(14, 14, 1))
    assert (done.content, bytes(done.token_ids)) == ("Hi. There.", pack_ids([5, 6, 7]))
    assert (done.usage_input, done.usage_cached, done.usage_output) == (12, 8, 3)


def test_an_earlier_request_changes_nothing(reply: Message) -> None:
    MessageOwner.finished(outcome(reply.id, request_id=new_id()))
    MessageOwner.claimed(reply.id, new_id())
    assert Message.objects.get(id=reply.id).status == "streaming"
    assert MessageOwner.prompt(reply.id, new_id()) is None


def test_finishing_twice_counts_once(reply: Message) -> None:
    finish(reply)
    assert finish(reply).content == "Hi."


def test_a_deleted_conversation_is_nobodys_error(reply: Message) -> None:
    reply.conversation.delete()
    MessageOwner.claimed(reply.id, REQUEST)
    MessageOwner.finished(outcome(reply.id))
    assert MessageOwner.prompt(reply.id, REQUEST) is None


def test_the_prompt_can_be_made_again(reply: Message) -> None:
    Message.objects.filter(id=reply.id).update(token_ids=pack_ids([5, 6]))
    source = MessageOwner.prompt(reply.id, REQUEST)
    assert source is not None
    assert [(turn.role, turn.content) for turn in source.turns] == [("user", "Hello")]
    assert source.prefix_ids == [5, 6]


def test_claimed_begins_the_reply_once(reply: Message) -> None:
    Message.objects.filter(id=reply.id).update(status="pending")
    MessageOwner.claimed(reply.id, REQUEST)
    MessageOwner.claimed(reply.id, REQUEST)  # a second attempt
    assert Message.objects.get(id=reply.id).status == "streaming"
