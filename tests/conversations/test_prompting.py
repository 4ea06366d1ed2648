"""Loading a branch, and its text as far as it fits."""

from collections.abc import Sequence

import pytest

from chatsite.ids import new_id
from conversations import prompting
from conversations.context import Entry
from conversations.models import Conversation, Message
from conversations.prompting import Row, fit, load_branch, load_texts, system_text, turns_of
from inference.errors import ContextTooLong
from inference.models import Model
from inference.protocol import Role, Turn


def chain(conversation: Conversation, count: int) -> list[Message]:
    """A branch of so many messages."""
    made: list[Message] = []
    for number in range(count):
        role = "assistant" if number % 2 else "user"
        parent = made[-1] if made else None
        made.append(
            Message(conversation=conversation, parent=parent, role=role, content=f"text {number}", tokens=number)
        )
    return Message.objects.bulk_create(made)


def test_a_branch_is_read_oldest_first(conversation: Conversation) -> None:
    messages = chain(conversation, 5)
    rows = load_branch(conversation.id, messages[3].id)
    assert [(row.id, row.content) for row in rows] == [(m.id, m.content) for m in messages[:4]]
    assert [row.entry for row in rows] == [
        Entry(Role.USER, 0),
        Entry(Role.ASSISTANT, 1),
        Entry(Role.USER, 2),
        Entry(Role.ASSISTANT, 3),
    ]
    assert load_branch(conversation.id, None) == []
    assert load_branch(new_id(), messages[3].id) == []
    assert load_branch(conversation.id, new_id()) == []


def test_the_text_of_far_messages_is_read_when_it_is_needed(conversation: Conversation) -> None:
    messages = chain(conversation, prompting.NEAR_TEXTS + 10)
    rows = load_branch(conversation.id, messages[-1].id)
    assert [row.content for row in rows[:10]] == [None] * 10
    assert [row.content for row in load_texts(rows)] == [message.content for message in messages]


def test_system_texts_are_joined() -> None:
    assert system_text(Model(system_prompt=""), "") == ""
    assert system_text(Model(system_prompt="A"), " ") == "A"
    assert system_text(Model(system_prompt="A"), "B") == "A\n\nB"


def test_s5_replies_without_text_are_left_out() -> None:
    rows = [
        Row(new_id(), Entry(Role.USER, 1), "a"),
        Row(new_id(), Entry(Role.ASSISTANT, 0, usable=False), ""),
        Row(new_id(), Entry(Role.USER, 1), "b"),
    ]
    assert turns_of("", rows) == [Turn(Role.USER, "a\n\nb")]


class Words:
    """A model that reads words; each turn costs `overhead` more, which the estimate does not know."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, overhead: int) -> None:
        self.overhead = overhead
        self.encoded: list[list[str]] = []
        monkeypatch.setattr(prompting.inference_services, "encode", self.encode)
        monkeypatch.setattr(prompting.inference_services, "count", self.count)

    async def encode(self, _model: Model, turns: Sequence[Turn]) -> list[int]:
        self.encoded.append([turn.content for turn in turns])
        return [7] * sum(len(turn.content.split()) + self.overhead for turn in turns)

    async def count(self, _model: Model, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def history(turns: int, words: int) -> list[Row]:
    """User and reply in turn, ending with the user."""
    text = "w " * words
    return [
        Row(new_id(), Entry(Role.ASSISTANT if number % 2 else Role.USER, words), text)
        for number in range(2 * turns + 1)
    ]


@pytest.mark.parametrize("overhead", [0, 5, 8, 30, 60])
@pytest.mark.parametrize("turns", [0, 1, 5, 20, 60])
async def test_s17_what_is_encoded_fits_whatever_the_template_costs(
    monkeypatch: pytest.MonkeyPatch, overhead: int, turns: int
) -> None:
    model = Model(name="words", context_length=1000)
    Words(monkeypatch, overhead)
    fitted = await fit(model, "", history(turns, 20))
    assert len(fitted.token_ids) + fitted.max_tokens <= 1000
    assert fitted.max_tokens >= 250
    assert fitted.left_out % 2 == 0


async def test_the_reply_to_continue_takes_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(name="words", context_length=1000)
    Words(monkeypatch, 8)
    prefix = list(range(500))
    fitted = await fit(model, "be kind", history(20, 20), prefix_ids=prefix)
    assert fitted.token_ids[-500:] == prefix
    assert len(fitted.token_ids) + fitted.max_tokens <= 1000


async def test_a_reply_that_fills_the_context_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    Words(monkeypatch, 8)
    with pytest.raises(ContextTooLong):
        await fit(Model(name="words", context_length=1000), "", history(1, 5), prefix_ids=[1] * 990)


async def test_a_message_that_is_too_long_is_not_even_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Words(monkeypatch, 8)
    with pytest.raises(ContextTooLong):
        await fit(Model(name="words", context_length=100), "", history(0, 100))
    assert words.encoded == []
