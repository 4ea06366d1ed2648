"""The page's socket: who may use it, what it answers, and what it does with bad frames."""

import asyncio
import gc
import json
from typing import Any

import pytest
from autobahn.exception import Disconnected

from chatsite import notices
from chatsite.errors import RateLimited
from chatsite.ids import new_id, public_id
from conversations import consumers, flow, services
from conversations.errors import ReplyRunning
from conversations.models import Conversation
from inference import selectors as inference_selectors
from inference.errors import HighDemand
from inference.models import Model
from quotas.selectors import aplan_of
from tests.conftest import Person
from tests.conversations.live_pages import conversation, script
from tests.conversations.pages import (
    Script,
    add_turn,
    communicator,
    connected,
    in_database,
    make_conversation,
    session_cookie,
)
from tests.waiting import wait_until

__all__ = ["conversation", "script"]
pytestmark = pytest.mark.django_db(transaction=True)


# Who may connect


async def test_without_a_session_it_closes_4401(conversation: Conversation) -> None:
    async with connected(conversation.id, None) as socket:
        assert await socket.closed() == 4401


async def test_an_api_key_is_no_session(conversation: Conversation, person: Person) -> None:
    async with connected(conversation.id, None, **person.headers) as socket:
        assert await socket.closed() == 4401


async def test_a_disabled_account_is_no_session(conversation: Conversation, person: Person) -> None:
    cookie = await session_cookie(person.user)
    person.user.is_active = False
    await person.user.asave(update_fields=["is_active"])
    async with connected(conversation.id, None, cookie=cookie) as socket:
        assert await socket.closed() == 4401


async def test_s32_another_users_conversation_closes_4404(conversation: Conversation, stranger: Person) -> None:
    async with connected(conversation.id, stranger.user) as socket:
        assert await socket.closed() == 4404


@pytest.mark.parametrize("name", ["conv_x", "x", "msg_018f3a3e-0000-7000-8000-000000000000"])
async def test_an_unknown_address_closes_4404(person: Person, name: str) -> None:
    async with connected(name, person.user) as socket:
        assert await socket.closed() == 4404


@pytest.mark.parametrize("origin", ["http://evil.example", "http://testserver:8000", "null", ""])
async def test_another_origin_is_refused_before_the_handshake(
    conversation: Conversation, person: Person, origin: str
) -> None:
    headers = {"cookie": await session_cookie(person.user), "origin": origin}
    accepted, _ = await communicator(conversation.id, headers).connect()
    assert not accepted


async def test_a_host_that_is_not_ours_is_refused(conversation: Conversation, person: Person) -> None:
    headers = {"cookie": await session_cookie(person.user), "origin": "http://evil.example", "host": "evil.example"}
    accepted, _ = await communicator(conversation.id, headers).connect()
    assert not accepted


async def test_a_session_that_ends_closes_4401(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    async with connected(conversation.id, person.user) as socket:
        await socket.until('"ping"')
        await in_database(person.user.set_password, "another one")
        await person.user.asave()
        assert await socket.closed() == 4401


async def test_a_session_that_is_ended_elsewhere_closes_4401_at_once(
    conversation: Conversation, person: Person
) -> None:
    async with connected(conversation.id, person.user) as one, connected("", person.user) as two:
        for socket in (one, two):
            await socket.hello()
        await one.until('hx-target="#thread"')
        await notices.announce(person.user.id, notices.SESSIONS)
        assert await two.silent()  # it still holds
        await in_database(person.user.set_password, "another one")
        await person.user.asave()
        await notices.announce(person.user.id, notices.SESSIONS)
        assert await one.closed() == 4401
        assert await two.closed() == 4401


async def test_a_deleted_conversation_closes_4404(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    async with connected(conversation.id, person.user) as socket:
        await conversation.adelete()
        assert await socket.closed() == 4404


async def test_a_page_hears_at_once_that_its_conversation_was_deleted(
    conversation: Conversation, person: Person
) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()
        await services.delete_conversation(person.session_principal, conversation.id)
        await socket.until("No conversations yet")
        assert await socket.closed() == 4404


async def test_the_page_of_a_new_chat_hears_of_conversations_and_does_nothing_else(person: Person) -> None:
    async with connected("", person.user) as socket:
        await socket.hello()
        assert await socket.silent()
        made = await in_database(make_conversation, person, "From another tab")
        await notices.announce(person.user.id, made.id)
        seen = await socket.until("From another tab")
        assert 'hx-target="#title"' not in seen
        await socket.say("send", content="Hi")
        await socket.until('"code": "not_found"')


# Doing


async def test_a_message_is_sent_shown_and_accepted(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(principal: Any, conversation_id: Any, content: str, **options: Any) -> None:
        assert principal == person.session_principal
        assert options["model"] == "tiny"
        await in_database(add_turn, conversation, content, "", status="pending", finish_reason="")

    monkeypatch.setattr(services, "send", send)
    first = await in_database(add_turn, conversation, "q1", "a1")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first)
        await socket.say("send", id="11-aa", content="Hi <b>", model="tiny", csrfmiddlewaretoken="x")
        seen = await socket.until('{"type": "accepted", "id": "11-aa"}')
        [frame] = [
            frame for frame in socket.frames if "Hi &lt;b&gt;" in frame
        ]  # in one frame, so that nothing flickers
        assert '<hx-partial hx-target="#sending-11-aa" hx-swap="delete">' in frame
        assert 'aria-label="Stop"' in frame
        assert "<p>a1</p>" not in seen  # only what is new


async def test_a_message_that_is_refused_says_why_and_when(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*args: Any, **kwargs: Any) -> None:
        raise RateLimited("1,000 tokens a minute are used up.", retry_after=19.2)

    monkeypatch.setattr(services, "send", send)
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="Hi")
        seen = await socket.until('"refused"')
        assert "1,000 tokens a minute are used up." in seen
        assert 'data-seconds="20">Try again in 20 s.' in seen
        await socket.say("send", id="7", content="Hi")  # beside the message itself then
        seen = await socket.until('"refused"')
        about = json.loads(socket.frames[-1])
        assert about == {
            "type": "refused",
            "id": "7",
            "code": "rate_limited",
            "message": "1,000 tokens a minute are used up.",
            "retry_after": 20,
        }
        assert "#notice" not in seen
        assert 'hx-target="#meters"' in seen  # after the first: they show how much is used up


async def test_in_a_crowd_the_page_names_the_plan_and_a_model_that_replies_sooner(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence that programs read has the seconds in it; a page counts them down beside it."""

    async def send(*args: Any, **kwargs: Any) -> None:
        raise HighDemand("High demand. Try again in 24 s.", retry_after=24)

    async def sooner(name: str, *about: Any) -> Model:
        return Model(name="small", title="Small One")

    monkeypatch.setattr(services, "send", send)
    monkeypatch.setattr(inference_selectors, "sooner_model", sooner)
    plan = (await aplan_of(person.organization.id)).name
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", id="7", content="Hi", model="tiny")
        await socket.until('"refused"')
        about = json.loads(socket.frames[-1])
        assert about["message"] == f"High demand on the {plan} plan."
        assert (about["retry_after"], about["smaller"]) == (24, {"name": "small", "title": "Small One"})
        await socket.say("send", content="Hi", model="tiny")
        notice = await socket.until("#notice")
        assert notice.count("Try again in") == 1


async def test_an_edited_message_takes_the_place_of_the_first(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = await in_database(add_turn, conversation, "q1", "a1")
    question = public_id("msg", reply.parent_id)

    async def send(principal: Any, conversation_id: Any, content: str, *, parent: Any, **options: Any) -> None:
        assert parent is None
        await in_database(Conversation.objects.filter(id=conversation.id).update, active_leaf=None)
        await conversation.arefresh_from_db()
        await in_database(add_turn, conversation, content, "", status="pending", finish_reason="")

    monkeypatch.setattr(services, "send", send)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        await socket.say("send", id="8", content="q2", edits=question)
        seen = await socket.until('"accepted"', "q2", "2/2")
        assert f'"choose", "message": "{question}"' in seen


async def test_feedback_is_kept_and_shown(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    message = public_id("msg", reply.id)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        await socket.say("feedback", message=message, value=1)
        seen = await socket.until(f'hx-target="#feedback-{message}" hx-swap="outerHTML"')
        assert seen.count('aria-pressed="true"') == 1
        await reply.arefresh_from_db()
        assert reply.feedback == 1
        await socket.say("feedback", message=message, value=3)
        await socket.until('"code": "invalid_input"')


async def test_a_reply_that_was_seen_is_not_unread_in_another_tab(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as one, connected("", person.user) as two:
        for socket in (one, two):
            await socket.hello(reply)
            assert await socket.silent()
        await one.say("seen", request=str(reply.request_id))
        await two.until('hx-target="#conversations"')
        await conversation.arefresh_from_db()
        assert conversation.seen_request == reply.request_id
        await one.say("seen", request="nonsense")
        await one.until('"code": "not_found"')


async def test_s11_stop_goes_ahead_of_what_waits(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, release = asyncio.Event(), asyncio.Event()

    async def send(*args: Any, **kwargs: Any) -> None:
        await release.wait()

    async def stop(principal: Any, message: Any) -> None:
        stopped.set()

    monkeypatch.setattr(services, "send", send)
    monkeypatch.setattr(services, "stop", stop)
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="Hi")
        await socket.say("stop", message=public_id("msg", new_id()))
        await asyncio.wait_for(stopped.wait(), 1)
        release.set()


async def test_our_own_fault_closes_1011_and_tells_nothing(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(services, "send", send)
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="Hi")
        assert await socket.closed() == 1011


async def test_a_socket_that_cannot_be_closed_pings_no_more(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret")

    async def close(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the close was lost")

    monkeypatch.setattr(services, "send", send)
    monkeypatch.setattr(consumers.ChatConsumer, "close", close)
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    async with connected(conversation.id, person.user) as socket:
        await socket.until('"ping"')
        await socket.say("send", content="Hi")
        async with asyncio.timeout(3):
            while not await socket.silent():
                await socket.communicator.receive_from()


async def test_a_page_that_has_left_is_no_fault_of_ours(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses to send before it says that the page is gone."""
    reply = await in_database(add_turn, conversation, "q", "a")
    failed = asyncio.Event()

    async def send(*args: Any, **kwargs: Any) -> None:
        failed.set()
        raise Disconnected("Attempt to send on a closed protocol")

    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()
        monkeypatch.setattr(consumers.ChatConsumer, "send", send)
        await socket.say("feedback", message=public_id("msg", reply.id), value=1)
        await asyncio.wait_for(failed.wait(), 3)
    gc.collect()  # a task whose error nobody has looked at says so then
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_a_send_that_is_refused_after_its_page_has_left_is_no_fault_of_ours(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, leave, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(*args: Any, **kwargs: Any) -> None:
        began.set()
        await leave.wait()
        refused.set()
        raise ReplyRunning

    monkeypatch.setattr(services, "send", send)
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="Hi")
        await asyncio.wait_for(began.wait(), 3)
    leave.set()
    await asyncio.wait_for(refused.wait(), 3)
    await wait_until(lambda: not flow._carried)
    gc.collect()
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
