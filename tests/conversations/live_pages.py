"""A conversation, and the script of its replies, for tests of open pages."""

from typing import Any

import pytest

from conversations import live
from conversations.follow import Done
from conversations.models import Conversation, Message
from inference.protocol import Cursor, Usage
from tests.conftest import Person
from tests.conversations.pages import Script, make_conversation


@pytest.fixture
def conversation(person: Person) -> Conversation:
    return make_conversation(person)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(live, "follow_from", made)
    return made


def finish(reply: Message, text: str, **changes: Any) -> None:
    values = {"status": "complete", "finish_reason": "stop", "content": text} | changes
    Message.objects.filter(id=reply.id).update(**values)


def done(reply: Message) -> Done:
    return Done(reply.id, "complete", "stop", Usage(1, 0, 1), Cursor(reply.request_id, 1, 1))
