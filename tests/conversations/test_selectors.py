"""Reads: what callers see of replies, and what a reader begins with."""

from uuid import UUID

import pytest

from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import new_id
from conversations import selectors
from conversations.models import Conversation, Message
from inference.models import Request
from inference.protocol import Cursor
from inference.selectors import PartialText
from tests.conftest import Person
from tests.conversations.pages import add_reply, add_turn

NOTHING = PartialText("", 0, 0)


@pytest.fixture
def running(conversation: Conversation) -> Message:
    return add_turn(conversation, "Hello", "Once ", status="streaming", finish_reason="", tokens=2)


def saved(monkeypatch: pytest.MonkeyPatch, partial: PartialText) -> None:
    monkeypatch.setattr(selectors.inference_selectors, "partial_text", lambda _request_id: partial)


def test_a_running_reply_has_all_that_is_saved(
    person: Person, running: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(monkeypatch, PartialText("upon", 4, 5))
    assert selectors.read_message(person.principal, running.id).content == "Once upon"
    reply = selectors.get_reply(person.principal, running.id)
    assert (reply.text, reply.tokens, reply.base_chars, reply.terminal) == ("Once upon", 4, 5, False)


def test_a_reply_that_ends_while_it_is_read_is_read_whole(
    person: Person, running: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its saved pieces are gone by then, and its row was read before."""

    def end(_request_id: UUID) -> PartialText:
        Message.objects.filter(id=running.id).update(status="complete", content="Once upon a time")
        return NOTHING

    monkeypatch.setattr(selectors.inference_selectors, "partial_text", end)
    message = selectors.read_message(person.principal, running.id)
    assert (message.status, message.content) == ("complete", "Once upon a time")


def test_a_cursor_belongs_to_its_message(person: Person, conversation: Conversation, running: Message) -> None:
    earlier, other = (
        Request.objects.create(
            organization=person.organization,
            user_id=person.user.id,
            model_id=conversation.model_id,
            lane="paid",
            owner_kind="message",
            owner_id=owner,
            sampling={},
            prompt_tokens=1,
            deadline=running.created_at,
        )
        for owner in (running.id, new_id())
    )
    assert running.request_id is not None
    for request_id in (running.request_id, earlier.id):
        selectors.get_reply(person.principal, running.id, Cursor(request_id, 0, 0))
    for request_id in (other.id, new_id()):
        with pytest.raises(InvalidInput):
            selectors.get_reply(person.principal, running.id, Cursor(request_id, 0, 0))


def test_s32_reads_ask_whose_it_is(stranger: Person, conversation: Conversation, running: Message) -> None:
    for read, found in (
        (selectors.get_conversation, conversation.id),
        (selectors.get_message, running.id),
        (selectors.read_message, running.id),
        (selectors.get_reply, running.id),
    ):
        with pytest.raises(NotFound):
            read(stranger.principal, found)


def test_s16_versions_of_a_turn(conversation: Conversation) -> None:
    first = add_turn(conversation, "Hello", "One")
    second = add_reply(conversation, first.parent, "Two")  # type: ignore[arg-type]
    add_turn(conversation, "Next", "Three")
    assert selectors.siblings(first) == selectors.siblings(second) == [first.id, second.id]


def test_a_reply_that_is_gone(person: Person, conversation: Conversation, running: Message) -> None:
    reply = selectors.get_reply(person.principal, running.id)
    conversation.delete()
    assert selectors.reread_reply(reply) is None
