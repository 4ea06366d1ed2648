"""What a page's socket is spared and refused: other conversations, a second hello or press, a flood of notices."""

import asyncio
from typing import Any

import pytest

from chatsite import notices
from chatsite.ids import new_id, public_id
from conversations import consumers, services
from conversations.errors import ReplyRunning
from conversations.models import Conversation, Message
from tests.conftest import Person
from tests.conversations.live_pages import conversation, script
from tests.conversations.pages import Script, add_turn, connected, in_database, make_conversation
from tests.waiting import wait_until

__all__ = ["conversation", "script"]
pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_page_changes_only_its_own_conversation(conversation: Conversation, person: Person) -> None:
    other = await in_database(make_conversation, person, "Another")
    reply = await in_database(add_turn, other, "q", "a", status="stopped")
    message = public_id("msg", reply.id)
    async with connected(conversation.id, person.user) as socket:
        edit = {"content": "Hi", "id": "1", "edits": public_id("msg", reply.parent_id)}
        kinds: dict[str, dict[str, Any]] = {"send": edit, "feedback": {"message": message, "value": 1}}
        kinds |= {kind: {"message": message} for kind in ("regenerate", "continue", "choose")}
        for kind, fields in kinds.items():
            await socket.say(kind, **fields)
            assert '"code": "not_found"' in await socket.until('"refused"')
    assert await in_database(other.messages.count) == 2
    assert (await in_database(other.messages.get, id=reply.id)).feedback == 0


async def test_a_page_is_shown_the_whole_once_on_a_connection(conversation: Conversation, person: Person) -> None:
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until('hx-target="#thread"')
        await socket.hello()
        assert '"code": "invalid_input"' in await socket.until('"refused"')
        assert 'hx-target="#thread"' not in socket.received[-1]


@pytest.mark.parametrize("kind", ["regenerate", "continue"])
async def test_a_second_press_leaves_no_alert_behind(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    reply = await in_database(add_turn, conversation, "q", "a", status="stopped")
    pressed = asyncio.Queue[bool]()

    async def begin(principal: Any, message: Any) -> None:
        first = pressed.empty()
        pressed.put_nowait(first)
        if not first:
            raise ReplyRunning
        changes = {"status": "pending", "request_id": new_id(), "finish_reason": ""}
        await in_database(Message.objects.filter(id=reply.id).update, **changes)

    for name in ("regenerate", "continue_reply"):
        monkeypatch.setattr(services, name, begin)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        for _ in range(2):
            await socket.say(kind, message=public_id("msg", reply.id))
        await socket.until('aria-label="Stop"')
        await wait_until(lambda: pressed.qsize() == 2)
        await socket.say("seen", request="nonsense")  # answered behind the second
        assert "reply_running" not in await socket.until('"code": "not_found"')


async def test_a_reply_that_runs_where_the_page_does_not_show_it_is_said(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def regenerate(principal: Any, message: Any) -> None:
        raise ReplyRunning

    monkeypatch.setattr(services, "regenerate", regenerate)
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        await socket.say("regenerate", message=public_id("msg", reply.id))
        await socket.until("reply_running")


async def test_many_notices_close_no_page_and_cost_few_looks(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    refresh = consumers.LiveSidebar.refresh

    async def slow(self: Any, **options: Any) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.1)
        await refresh(self, **options)

    monkeypatch.setattr(consumers.LiveSidebar, "refresh", slow)
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        await wait_until(lambda: looks >= 2)
        for number in range(100):
            await notices.announce(person.user.id, new_id())
            if number % 20 == 0:
                await asyncio.sleep(consumers.CHANGE_SECONDS / 2)
        await in_database(add_turn, conversation, "q2", "the last")
        await notices.announce(person.user.id, conversation.id)
        await socket.until("the last")
    assert looks < 20
