"""Frames that the page's socket refuses: malformed, too big, too many, or with ids of others."""

import pytest

from chatsite.ids import public_id
from conversations import commands, flow
from conversations.models import Conversation
from tests.conftest import Person
from tests.conversations.live_pages import conversation, script
from tests.conversations.pages import add_turn, connected, in_database, make_conversation

__all__ = ["conversation", "script"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "{",
        "[]",
        "null",
        "<b>",
        '{"type": "nonsense"}',
        '{"type": "send"}',
        '{"type": "send", "content": 1}',
        '{"type": "send", "content": "\\ud800"}',
        '{"type": "stop", "message": {}}',
        '{"type": "ack"}',
        '{"type": "feedback", "message": "x"}',
        '{"type": "send", "content": "Hi", "id": ""}',
        '{"type": "send", "content": "Hi", "id": "\\u00e9"}',
        '{"type": "ack", "frames": 1e400}',
        '{"type": "ack", "frames": 1, "more": ' + "[" * 100_000,
        '{"type": "send", "content": "Hi", "model": "a\\u0000b"}',
    ],
)
async def test_a_malformed_frame_is_refused_and_the_socket_lives(
    conversation: Conversation, person: Person, text: str
) -> None:
    async with connected(conversation.id, person.user) as socket:
        await socket.communicator.send_to(text_data=text)
        seen = await socket.until('"refused"')
        assert '"code": "invalid_input"' in seen or '"code": "unknown_model"' in seen
        assert "<b>" not in seen
        await socket.hello()
        await socket.until('hx-target="#thread"')


async def test_bytes_are_refused(conversation: Conversation, person: Person) -> None:
    async with connected(conversation.id, person.user) as socket:
        await socket.communicator.send_to(bytes_data=b"\x00\xff")
        await socket.until('"refused"')


async def test_a_frame_that_is_too_big_closes_1009(conversation: Conversation, person: Person) -> None:
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="x" * commands.MAX_FRAME_BYTES)
        assert await socket.closed() == 1009


async def test_too_many_frames_close_4429(conversation: Conversation, person: Person) -> None:
    async with connected(conversation.id, person.user) as socket:
        for _ in range(int(flow.FRAMES_BURST) + 5):
            await socket.say("ack", frames=1)
        assert await socket.closed() == 4429


async def test_s32_frames_with_foreign_ids_do_nothing(
    conversation: Conversation, person: Person, stranger: Person
) -> None:
    theirs = await in_database(add_turn, await in_database(make_conversation, stranger), "q", "secret")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until('hx-target="#thread"')
        foreign = {"message": public_id("msg", theirs.id), "value": 1}
        edit = {"content": "Hi", "id": "1", "edits": public_id("msg", theirs.parent_id)}
        kinds = dict.fromkeys(("stop", "regenerate", "continue", "choose", "feedback"), foreign) | {"send": edit}
        for kind, fields in kinds.items():
            await socket.say(kind, **fields)
            seen = await socket.until('"refused"')
            assert '"code": "not_found"' in seen
            assert "secret" not in seen
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(theirs, f"{theirs.request_id}.0.0")
        assert "secret" not in await socket.until('hx-target="#thread"')
