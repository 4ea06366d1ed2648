"""What an open page is shown: what it lacks, a reply's life, and what other pages did."""

import threading

import pytest

from chatsite import notices
from chatsite.ids import new_id, public_id
from conversations import articles, flow, frames, live, services
from conversations.articles import NOT_STARTED
from conversations.follow import Queued, Retrying, Started, Token
from conversations.markdown import render_markdown
from conversations.models import Conversation, Message
from inference.protocol import Cursor
from tests.conftest import Person
from tests.conversations.live_pages import conversation, done, finish, script
from tests.conversations.pages import Script, add_reply, add_turn, connected, in_database, make_model

__all__ = ["conversation", "script"]
pytestmark = pytest.mark.django_db(transaction=True)


# Catching up


async def test_a_page_that_is_up_to_date_is_told_nothing(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()


async def test_a_page_that_is_behind_is_shown_what_it_lacks(conversation: Conversation, person: Person) -> None:
    """It keeps the rest, and so its reader's place in it."""
    first = await in_database(add_turn, conversation, "q1", "a1")
    await in_database(add_turn, conversation, "q2", "a2")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first, again=True)
        seen = await socket.until('hx-target="#thread" hx-swap="beforeend"', "<p>a2<", 'hx-target="#conversations"')
        assert ">q2<" in seen and ">q1<" not in seen and "<p>a1<" not in seen
        assert 'hx-target="#thread" hx-swap="innerHTML"' not in seen


async def test_a_page_that_missed_the_end_of_a_reply_and_more_is_shown_both(
    conversation: Conversation, person: Person
) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    second = await in_database(add_turn, conversation, "q2", "a2 as it ended")
    await in_database(add_turn, conversation, "q3", "a3")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(second, str(Cursor(second.request_id, 1, 2)), again=True)
        seen = await socket.until("<p>a3<", 'hx-target="#conversations"')
        removed = f'hx-target="#{public_id("msg", second.id)}" hx-swap="delete"'
        assert seen.index(removed) < seen.index("a2 as it ended") < seen.index(">q3<")
        assert public_id("msg", first.id) not in seen


async def test_a_page_whose_last_turn_is_of_no_branch_any_more_is_shown_the_whole(
    conversation: Conversation, person: Person
) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    await in_database(Conversation.objects.filter(id=conversation.id).update, active_leaf=None)
    conversation.active_leaf = None
    await in_database(add_turn, conversation, "edited", "anew")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(first, again=True)
        seen = await socket.until('hx-target="#thread" hx-swap="innerHTML"', "<p>anew<")
        assert "<p>a1<" not in seen


async def test_s1_a_page_goes_on_behind_its_cursor(conversation: Conversation, person: Person, script: Script) -> None:
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    cursor = Cursor(reply.request_id, 2, 7)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, str(cursor))
        script.events.put_nowait(Token(" more", Cursor(reply.request_id, 3, 12)))
        seen = await socket.until(" more")
        assert "#thread" not in seen
    assert script.cursors == [cursor]


async def test_s1_a_cursor_of_an_earlier_request_shows_the_reply_anew(
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


async def test_a_page_that_connects_again_is_told_what_changed_below_its_turns(
    conversation: Conversation, person: Person
) -> None:
    """A version that is not shown, feedback, the model: its last turn is the same."""
    first = await in_database(add_turn, conversation, "q1", "a1")
    last = await in_database(add_turn, conversation, "q2", "a2", feedback=1)
    question = await in_database(Message.objects.get, id=last.parent_id)
    await in_database(add_reply, conversation, question, "another")
    await in_database(Conversation.objects.filter(id=conversation.id).update, active_leaf=last)
    names = {message: public_id("msg", message.id) for message in (first, question, last)}
    shown = [[name, 1, 1, 0] for name in names.values()]
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(last, again=True, around=shown, model="another")
        seen = await socket.until('"model_changed", "name": "tiny"', "1/2")
        assert seen.count('hx-target="#versions-') == 1 and f'"#versions-{names[last]}"' in seen
        assert f'hx-target="#feedback-{names[last]}"' in seen and seen.count('aria-pressed="true"') == 1
        assert "#thread" not in seen and names[first] not in seen
    now = [[names[first], 1, 1, 0], [names[last], 1, 2, 1]]
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(last, around=now, model="tiny")
        assert await socket.silent()


async def test_feedback_and_the_model_are_shown_in_the_other_tab(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    target = f'hx-target="#feedback-{public_id("msg", reply.id)}"'
    async with connected(conversation.id, person.user) as one, connected(conversation.id, person.user) as two:
        for socket in (one, two):
            await socket.hello(reply)
            assert await socket.silent()
        await one.say("feedback", message=public_id("msg", reply.id), value=-1)
        assert (await two.until(target)).count('aria-pressed="true"') == 1
        await one.until(target)
        assert await one.silent(), "it is not told again"
        await in_database(make_model, "large")
        await in_database(Conversation.objects.filter(id=conversation.id).update, model_id="large")
        await notices.announce(person.user.id, conversation.id)
        await two.until('"model_changed", "name": "large"')


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
        assert 'aria-label="Send"' in seen
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


# Bounds


async def test_a_long_conversation_comes_in_frames_that_a_server_takes(
    conversation: Conversation, person: Person
) -> None:
    for number in range(20):
        await in_database(add_turn, conversation, f"q{number}", "word " * 12_000)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        sent = 0
        while "q19<" not in "".join(socket.frames):
            sent = len(socket.frames)
            await socket.until("</hx-partial>")
            await socket.say("ack", frames=sent + 1)
        assert sent > 1
        assert max(len(frame.encode()) for frame in socket.frames) <= 2 * frames.FRAME_BYTES


async def test_of_a_long_running_reply_a_page_is_shown_the_beginning_then_the_rest(
    conversation: Conversation, person: Person
) -> None:
    text = "§" * 100_000
    changes = {"status": "streaming", "finish_reason": "", "tokens": 20_000}
    reply = await in_database(add_turn, conversation, "q", text, **changes)
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        for number in range(1, 9):
            seen = await socket.until("</hx-partial>")
            assert len(seen) < frames.FRAME_BYTES
            await socket.say("ack", frames=number)
            if f'data-cursor="{reply.request_id}.20000.{len(text)}"' in seen:
                break
        assert number > 2
        assert "".join(socket.frames).count("§") == len(text)


async def test_nothing_is_rendered_on_the_event_loop(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def render(text: str) -> str:
        threads.append(threading.current_thread())
        return render_markdown(text)

    monkeypatch.setattr(articles, "render_markdown", render)
    await in_database(add_turn, conversation, "q", "a")
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until("<p>a</p>")
        await in_database(finish, reply, "the end")
        script.events.put_nowait(done(reply))
        await socket.until("<p>the end</p>")
        await in_database(add_turn, conversation, "q", "one more")
        await notices.announce(person.user.id, conversation.id)
        await socket.until("<p>one more</p>")
    assert len(threads) >= 3
    assert threading.main_thread() not in threads


# What other pages do


async def test_s13_what_one_tab_does_every_tab_sees(conversation: Conversation, person: Person, script: Script) -> None:
    first = await in_database(add_turn, conversation, "q1", "a1")
    async with connected(conversation.id, person.user) as one, connected(conversation.id, person.user) as two:
        for socket in (one, two):
            await socket.hello(first)
            assert await socket.silent()
        second = await in_database(add_turn, conversation, "q2", "", status="streaming", finish_reason="")
        await notices.announce(person.user.id, conversation.id)
        for socket in (one, two):
            await socket.until("q2", f'id="source-{public_id("msg", second.id)}"', 'aria-label="Stop"')


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


async def test_a_conversation_that_is_renamed_is_renamed_everywhere(conversation: Conversation, person: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()
        await in_database(services.update_conversation, person.session_principal, conversation.id, title="Tides")
        await socket.until('hx-target="#title" hx-swap="innerHTML">Tides<', 'hx-target="#conversations"')


async def test_the_figures_are_sent_when_a_reply_has_given_back_what_it_held(
    conversation: Conversation, person: Person
) -> None:
    reply = await in_database(add_turn, conversation, "q", "a")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply)
        assert await socket.silent()
        await in_database(Message.objects.filter(id=reply.id).update, tokens=401)
        await notices.announce(person.user.id, reply.id)
        await socket.until('hx-target="#meters" hx-swap="outerHTML"', "10 % of 4,096 tokens")


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
