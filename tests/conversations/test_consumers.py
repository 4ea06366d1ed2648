"""The page's socket: who may use it, what it answers, and that two pages see one conversation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.db import OperationalError

from chatsite.errors import RateLimited
from chatsite.ids import new_id, public_id
from chatsite import notices
from conversations import consumers, flow, follow, live
from conversations.articles import NOT_STARTED
from conversations.follow import Done, Queued, ReplyEvent, Retrying, Started, Token
from conversations.models import Conversation, Message
from conversations.selectors import Reply
from inference.protocol import Cursor, Usage
from tests.conftest import Person
from tests.conversations.pages import (
    add_reply,
    add_turn,
    communicator,
    connected,
    in_database,
    make_conversation,
    session_cookie,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation(person: Person) -> Conversation:
    return make_conversation(person)


class Script:
    """Stands in for `follow_from`: tests say what the reply does."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[ReplyEvent] = asyncio.Queue()
        self.cursors: list[Cursor | None] = []

    async def __call__(self, reply: Reply, cursor: Cursor | None = None) -> AsyncIterator[ReplyEvent]:
        self.cursors.append(cursor)
        while True:
            yield await self.events.get()


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


async def test_a_deleted_conversation_closes_4404(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    async with connected(conversation.id, person.user) as socket:
        await conversation.adelete()
        assert await socket.closed() == 4404


# Bad frames


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
        await socket.say("send", content="x" * consumers.MAX_FRAME_BYTES)
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
        for kind in ("stop", "regenerate", "continue", "choose"):
            await socket.say(kind, message=public_id("msg", theirs.id))
            seen = await socket.until('"refused"')
            assert '"code": "not_found"' in seen
            assert "secret" not in seen
        await socket.hello(theirs, f"{theirs.request_id}.0.0")
        assert "secret" not in await socket.until('hx-target="#thread"')


# Catching up


async def test_a_page_that_is_up_to_date_is_told_nothing(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()


async def test_a_page_that_is_behind_is_shown_the_whole(conversation: Conversation, person: Person) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    await in_database(add_turn, conversation, "q2", "a2")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first, again=True)
        seen = await socket.until('hx-target="#thread" hx-swap="innerHTML"', "a2", 'hx-target="#conversations"')
        assert seen.index(">q1<") < seen.index("<p>a1<") < seen.index(">q2<")


async def test_s1_a_page_goes_on_behind_its_cursor(conversation: Conversation, person: Person, script: Script) -> None:
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    cursor = Cursor(reply.request_id, 2, 7)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, str(cursor))
        script.events.put_nowait(Token(" more", Cursor(reply.request_id, 3, 12)))
        seen = await socket.until(" more")
        assert "#thread" not in seen
    assert script.cursors == [cursor]


async def test_s1_a_cursor_of_an_earlier_request_shows_the_whole(
    conversation: Conversation, person: Person, script: Script
) -> None:
    reply = await in_database(add_turn, conversation, "q", "so far", status="streaming", finish_reason="", tokens=2)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, f"{new_id()}.2.6")
        await socket.until('hx-target="#thread"', "so far")
    assert script.cursors in ([], [Cursor(reply.request_id, 2, 6)])


async def test_a_continued_reply_that_waits_keeps_its_text(
    conversation: Conversation, person: Person, script: Script
) -> None:
    reply = await in_database(add_turn, conversation, "q", "so far", status="pending", finish_reason="", tokens=2)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        script.events.put_nowait(Queued(reply.id, 3, 4.0, False))
        seen = await socket.until("3rd in line, about 4 s")
        assert "so far" in seen
    assert script.cursors == [Cursor(NOT_STARTED, 2, 6)]


# A reply's life


async def test_a_reply_from_queue_to_end(conversation: Conversation, person: Person, script: Script) -> None:
    reply = await in_database(add_turn, conversation, "q", "", status="pending", finish_reason="")
    message, cursor = public_id("msg", reply.id), Cursor(reply.request_id, 1, 1)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until(f'"stop", "message": "{message}"', "#composer-slot")
        script.events.put_nowait(Queued(reply.id, 1, None, True))
        await socket.until("Tiny is loading")
        script.events.put_nowait(Started(reply.id, None, cursor))
        await socket.until('class="dots"', ">Replying<")
        script.events.put_nowait(Token("**a", cursor))
        seen = await socket.until(">**a</span>")
        assert f'<hx-partial hx-target="#note-{message}" hx-swap="innerHTML"></hx-partial>' in seen
        script.events.put_nowait(Retrying(2, cursor))
        await socket.until("Reconnecting to another replica")
        await in_database(finish, reply, "**ab**")
        script.events.put_nowait(done(reply))
        seen = await socket.until(f'hx-target="#{message}" hx-swap="outerHTML"', "#announcer")
        assert "<strong>ab</strong>" in seen
        assert ">Send<" in seen
        assert socket.received[-1].count("#announcer") == 1  # S36: not token by token


async def test_a_page_that_is_too_slow_closes_4408(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow.Outbox.__init__, "__defaults__", (0.1,))
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, f"{reply.request_id}.0.0")
        for number in range(40):
            script.events.put_nowait(Token("x" * 10_000, Cursor(reply.request_id, number, number)))
        assert await socket.closed() == 4408


# Doing


async def test_a_message_is_sent_accepted_and_shown(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(principal: Any, conversation_id: Any, content: str, *, model: str | None) -> None:
        assert principal == person.session_principal
        await in_database(add_turn, conversation, content, "", status="pending", finish_reason="")

    monkeypatch.setattr(consumers.services, "send", send)
    first = await in_database(add_turn, conversation, "q1", "a1")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first)
        await socket.say("send", content="Hi <b>", model="tiny", csrfmiddlewaretoken="x")
        seen = await socket.until('{"type": "accepted"}', "Hi &lt;b&gt;", ">Stop<")
        assert "<p>a1</p>" not in seen  # only what is new


async def test_a_message_that_is_refused_says_why_and_when(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*args: Any, **kwargs: Any) -> None:
        raise RateLimited("1,000 tokens a minute are used up.", retry_after=19.2)

    monkeypatch.setattr(consumers.services, "send", send)
    async with connected(conversation.id, person.user) as socket:
        await socket.say("send", content="Hi")
        seen = await socket.until('"refused"')
        assert "1,000 tokens a minute are used up. Try again in 20 s." in seen
        assert '"code": "rate_limited"' in seen


async def test_s13_what_one_tab_does_every_tab_sees(conversation: Conversation, person: Person, script: Script) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    async with connected(conversation.id, person.user) as one, connected(conversation.id, person.user) as two:
        for socket in (one, two):
            await socket.hello(first)
            assert await socket.silent()
        second = await in_database(add_turn, conversation, "q2", "", status="streaming", finish_reason="")
        await notices.announce(person.user.id, conversation.id)
        for socket in (one, two):
            await socket.until("q2", f'id="source-{public_id("msg", second.id)}"', ">Stop<")


async def test_s16_another_version_takes_the_place_of_the_first(
    conversation: Conversation, person: Person, script: Script
) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    user = await in_database(lambda: Message.objects.get(id=first.parent_id))
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first)
        assert await socket.silent()
        second = await in_database(add_reply, conversation, user, "a2")
        await notices.announce(person.user.id, conversation.id)
        seen = await socket.until("a2", "2/2")
        assert f'hx-target="#{public_id("msg", first.id)}" hx-swap="delete"' in seen
        await socket.say("choose", message=public_id("msg", first.id))
        seen = await socket.until("a1", "1/2")
        assert f'hx-target="#{public_id("msg", second.id)}" hx-swap="delete"' in seen
    assert await in_database(Message.objects.count) == 3


async def test_s11_stop_goes_ahead_of_what_waits(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, release = asyncio.Event(), asyncio.Event()

    async def send(*args: Any, **kwargs: Any) -> None:
        await release.wait()

    async def stop(principal: Any, message: Any) -> None:
        stopped.set()

    monkeypatch.setattr(consumers.services, "send", send)
    monkeypatch.setattr(consumers.services, "stop", stop)
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

    monkeypatch.setattr(consumers.services, "send", send)
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

    monkeypatch.setattr(consumers.services, "send", send)
    monkeypatch.setattr(consumers.ChatConsumer, "close", close)
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    async with connected(conversation.id, person.user) as socket:
        await socket.until('"ping"')
        await socket.say("send", content="Hi")
        async with asyncio.timeout(3):
            while not await socket.silent():
                await socket.communicator.receive_from()


# A database that is away


class Outage:
    """Makes reads fail as they do while PostgreSQL restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.failures = 0
        monkeypatch.setattr(follow, "AWAY_SECONDS", 0.02)
        for name in ("load_article", "load_branch"):
            monkeypatch.setattr(live, name, self._failing(getattr(live, name)))
        for name in ("get_reply", "get_conversation"):
            monkeypatch.setattr(live.selectors, name, self._failing(getattr(live.selectors, name)))

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                self.failures += 1
                raise OperationalError("the database system is starting up")
            return function(*args, **kwargs)

        return call


async def test_s2_a_database_that_restarts_costs_no_finished_frame(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, f"{reply.request_id}.0.0")
        script.events.put_nowait(Token("half", Cursor(reply.request_id, 1, 4)))
        await socket.until("half")
        outage.on = True
        await in_database(finish, reply, "**whole**")
        script.events.put_nowait(done(reply))
        await wait_until(lambda: outage.failures > 3)
        await socket.until('"ping"')
        outage.on = False
        seen = await socket.until(f'hx-target="#{public_id("msg", reply.id)}" hx-swap="outerHTML"')
        assert "<strong>whole</strong>" in seen


async def test_s2_what_a_page_hears_of_while_the_database_is_away_it_is_shown_later(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    await in_database(add_turn, conversation, "q", "a1")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until("a1")
        outage.on = True
        await in_database(add_turn, conversation, "q", "a2")
        await notices.announce(person.user.id, conversation.id)
        await wait_until(lambda: outage.failures)
        outage.on = False
        await socket.until("a2")


# Comparing


@pytest.mark.parametrize(
    ("shown", "now", "kept"),
    [
        ("", "", (0, 0)),
        ("", "ab", None),
        ("ab", "", None),
        ("ab", "cd", None),
        ("ab", "ab", (2, 2)),
        ("ab", "abcd", (2, 2)),
        ("abc", "abx", (2, 2)),
        ("abcd", "ab", (2, 2)),
        ("abcd", "cdef", (4, 2)),
        ("abcd", "cxyz", (3, 1)),
    ],
)
def test_how_much_of_a_page_may_stay(shown: str, now: str, kept: tuple[int, int] | None) -> None:
    ids = {letter: (new_id(), None) for letter in "abcdefxyz"}
    found = live.common_start([ids[letter] for letter in shown], [ids[letter] for letter in now])
    assert (found and (found.shown, found.now)) == kept


def test_hello_is_not_trusted() -> None:
    assert consumers.place_of(consumers.Hello(message="x", request="y")).message_id is None
    assert consumers.place_of(consumers.Hello(cursor="nonsense")).cursor is None
