"""Fragments: what is written is escaped, and a reply's bytes are linear in its text."""

import re
from html import unescape
from uuid import UUID

import pytest

from chatsite.errors import AppError, RateLimited
from chatsite.ids import new_id
from conversations import frames
from conversations.articles import Article, Branch
from conversations.follow import Queued, Token
from inference.protocol import Cursor
from quotas.errors import QuotaExceeded
from quotas.protocol import Remaining

REQUEST = new_id()
HOSTILE = "<script>alert(1)</script><hx-partial hx-target='body'>&\"'"


def article(**changes: object) -> Article:
    values = {
        "id": new_id(),
        "role": "assistant",
        "text": "hi",
        "status": "complete",
        "model": "Tiny",
        "request_id": REQUEST,
    }
    return Article(**values | changes)


def delta(text: str, characters: int = 0) -> str:
    return frames.token(UUID(int=7), Token(text, Cursor(REQUEST, 3, characters)))


def test_a_delta_goes_to_the_end_of_its_own_reply_with_the_cursor_behind_it() -> None:
    assert delta("a b", 12) == (
        f'<hx-partial hx-target="#source-msg_{UUID(int=7)}" hx-swap="beforeend">'
        f'<span data-cursor="{REQUEST}.3.12">a b</span></hx-partial>'
    )


def test_s34_a_delta_is_escaped() -> None:
    frame = delta(HOSTILE)
    assert "<script" not in frame
    assert frame.count("<hx-partial") == 1


def test_a_carriage_return_survives_the_parser() -> None:
    assert "a&#13;\nb" in delta("a\r\nb")


def test_s6_bytes_are_linear_in_the_text() -> None:
    def size(count: int) -> int:
        return sum(len(delta("word ", 5 * index)) for index in range(count))

    assert size(4000) / size(2000) < 2.05


@pytest.mark.parametrize(
    ("position", "eta", "loading", "text"),
    [
        (3, 3.2, False, "3rd in line, about 4 s"),
        (1, None, False, "Next in line"),
        (2, 0.0, False, "2nd in line, about 1 s"),
        (11, None, False, "11th in line"),
        (1, 29.5, True, "Tiny is loading, about 30 s"),
        (5, None, True, "Tiny is loading"),
    ],
)
def test_what_a_waiting_reply_says(position: int, eta: float | None, loading: bool, text: str) -> None:
    assert frames.queue_text(Queued(new_id(), position, eta, loading), "Tiny") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (111, "111th"),
        (112, "112th"),
    ],
)
def test_ordinals(number: int, text: str) -> None:
    assert frames.ordinal(number) == text


def test_a_time_that_has_passed_is_not_shown_again_and_again() -> None:
    waits = Queued(UUID(int=7), 1, 0.4, False)
    assert frames.queue_text(waits, "Tiny") == "Next in line, about 1 s"
    late = Queued(UUID(int=7), 2, None, False, late=True)
    assert frames.queue_text(late, "Tiny") == "2nd in line, taking longer than expected"


def test_one_who_waits_may_give_up() -> None:
    frame = frames.queued(Queued(UUID(int=7), 3, 4, False), "Tiny")
    assert f'{{"type": "stop", "message": "msg_{UUID(int=7)}"}}' in frame


def test_s36_the_end_of_a_reply_is_announced_as_text_once() -> None:
    [frame] = frames.finished("conv_1", article(text="**Hello** <b>", status="stopped", finish_reason="cancelled"))
    spoken = frame.split('hx-target="#announcer"')[1]
    assert spoken == ' hx-swap="innerHTML">Hello &lt;b&gt; Stopped</hx-partial>'


def test_of_a_long_reply_only_the_beginning_is_announced() -> None:
    for text in ("word " * 50_000, "&" * 50_000, "```python\n" + "x = [1]\n" * 2_000):
        spoken = frames.spoken(article(text=text))
        assert 1_000 < len(spoken) <= frames.SPOKEN_CHARS + 1
        assert spoken.endswith("…")


@pytest.mark.parametrize("text", ["&" * 60_000, "a" * 300_000, "```python\n" + "x = [1]\n" * 40_000])
def test_no_frame_outgrows_what_a_server_takes(text: str) -> None:
    turn = article(text=text)
    branch = Branch([article(), *[article(role=role, text="<b>" * 8_000) for role in ("user", "assistant") * 10], turn])
    ended = frames.finished("conv_1", turn)
    shown = frames.thread("conv_1", branch)
    for frame in [*ended, *shown, *frames.pack(frames.append("conv_1", branch.articles))]:
        assert len(frame.encode()) <= 2 * frames.FRAME_BYTES
    fetch = f'hx-get="/c/conv_1/turns/{turn.public_id}"'
    assert fetch in ended[-1] or fetch in ended[-2]
    assert not any(f'hx-target="#{turn.public_id}" hx-swap="outerHTML"><article' in frame for frame in ended)
    assert [fetch in frame for frame in shown] == [False] * (len(shown) - 1) + [True]
    assert "".join(shown).count("<article") == len(branch.articles)
    assert shown[0].startswith('<hx-partial hx-target="#thread" hx-swap="innerHTML">')
    assert all(frame.startswith('<hx-partial hx-target="#thread" hx-swap="beforeend">') for frame in shown[1:])


def test_an_empty_thread_is_shown_as_such() -> None:
    [shown] = frames.thread("conv_1", Branch([]))
    assert "".join(shown.split()) == '<hx-partialhx-target="#thread"hx-swap="innerHTML"></hx-partial>'


def test_a_long_delta_goes_out_in_pieces_with_a_cursor_each() -> None:
    text = '"é' * 50_000
    pieces = list(frames.deltas(UUID(int=7), Token(text, Cursor(REQUEST, 9, 100_007))))
    ends = [int(found[1]) for piece in pieces if (found := re.search(r'data-cursor="[^"]*\.9\.(\d+)"', piece))]
    assert ends[-1] == 100_007
    assert len(ends) == len(pieces) == len(set(ends))
    assert ends == sorted(ends)
    assert max(len(piece.encode()) for piece in pieces) <= frames.FRAME_BYTES
    shown = "".join(unescape(re.sub(r"<[^>]*>", "", piece)) for piece in pieces)
    assert shown == text


def test_s34_what_a_person_wrote_is_escaped() -> None:
    html = frames.article_html(article(role="user", text=HOSTILE))
    assert "<script" not in html
    assert "<hx-partial" not in html


def test_s34_an_error_message_is_escaped() -> None:
    html = frames.article_html(article(status="failed", error_message=HOSTILE, error_code="engine_unavailable"))
    assert "<script" not in html


@pytest.mark.parametrize(
    ("changes", "outcome", "continuable"),
    [
        ({}, "", False),
        ({"status": "stopped", "finish_reason": "cancelled"}, "Stopped", True),
        ({"finish_reason": "length"}, "Reached the length limit", True),
        ({"status": "failed", "error_message": "No engine.", "error_code": "engine_unavailable"}, "No engine.", True),
        (
            {"status": "failed", "error_message": "No engine.", "error_code": "engine_unavailable", "text": ""},
            "No engine.",
            False,
        ),
        ({"status": "failed", "error_message": "Too long.", "error_code": "context_too_long"}, "Too long.", False),
    ],
)
def test_how_a_reply_ended_is_said_with_a_way_on(changes: dict[str, str], outcome: str, continuable: bool) -> None:
    ended = article(**changes)
    html = frames.article_html(ended)
    assert ended.outcome == outcome
    assert outcome in html
    assert ('"type": "continue"' in html) is continuable
    assert '"type": "regenerate"' in html


def test_a_running_reply_shows_its_text_and_where_it_stands() -> None:
    html = frames.article_html(article(status="streaming", text="<b>so far", cursor=Cursor(REQUEST, 2, 9)))
    assert f'data-cursor="{REQUEST}.2.9"' in html
    assert 'aria-busy="true"' in html
    assert "&lt;b&gt;so far" in html
    assert "regenerate" not in html


def test_s16_versions_lead_to_each_other() -> None:
    first, second, third = new_id(), new_id(), new_id()
    html = frames.article_html(article(id=second, siblings=[first, second, third]))
    assert "2/3" in html
    assert f"msg_{first}" in html
    assert f"msg_{third}" in html


def test_a_refusal_says_when_to_try_again() -> None:
    assert frames.refusal(RateLimited("Enough.", retry_after=19.2)) == "Enough. Try again in 20 s."
    assert frames.refusal(AppError("Broken.")) == "Broken."


def test_the_seconds_are_said_once() -> None:
    """Programs read them in the sentence; a page has them beside it, or nowhere else."""
    crowded = RateLimited("High demand. Try again in 24 s.", retry_after=24)
    assert frames.refusal(crowded) == "High demand. Try again in 24 s."
    assert frames.notice(crowded.message, 24).count("Try again in") == 1
    assert '"message": "High demand."' in frames.refused(crowded)
    assert "Try again in 2000 s." in frames.refused(RateLimited("Enough. Try again in 2000 s.", retry_after=2000))


def over_quota(retry_after: float) -> QuotaExceeded:
    return QuotaExceeded("The <free> plan allows 5.", Remaining(()), retry_after=retry_after)


def test_over_quota_there_is_a_link_to_what_is_left() -> None:
    link = '<a href="/usage/#limits">See your usage</a>'
    assert frames.refusal(over_quota(9)) == f"The &lt;free&gt; plan allows 5. {link} Try again in 9 s."
    assert link in frames.notice("Enough.", 9, over_quota=True)
    assert link not in frames.notice("Enough.", 9)
    assert '"usage": "/usage/#limits"' in frames.refused(over_quota(9))
    assert '"usage"' not in frames.refused(RateLimited("Enough."))


def test_nobody_sits_and_waits_for_the_next_month() -> None:
    """The sentence names the day; seconds are not counted down."""
    month = over_quota(20 * 86400)
    assert "Try again" not in frames.refusal(month)
    assert "Try again" not in frames.notice("Enough.", month.retry_after)
    assert '"retry_after": null' in frames.refused(month)


def test_stop_takes_the_place_of_send() -> None:
    assert 'aria-label="Send"' in frames.action(None)
    assert 'aria-label="Stop"' in frames.action(new_id())


def test_a_notice_counts_down_and_goes() -> None:
    notice = frames.notice("<b>Enough.", 0.2)
    assert "&lt;b&gt;Enough." in notice
    assert 'data-seconds="1">Try again in 1 s.' in notice
    assert frames.notice("") == '<hx-partial hx-target="#notice" hx-swap="innerHTML"></hx-partial>'


@pytest.mark.parametrize("sending", ['1"><script>', "", "a b", "x" * 65])
def test_s34_only_an_id_is_a_target(sending: str) -> None:
    assert frames.confirm(sending) == ""


def test_a_model_that_loads_has_a_line_that_moves() -> None:
    assert 'class="progress"' in frames.queued(Queued(new_id(), 1, 30, True), "Tiny")
    assert 'class="progress"' not in frames.queued(Queued(new_id(), 1, 30, False), "Tiny")


def test_what_the_model_does_not_see_is_said_where_it_begins() -> None:
    text = "Earlier messages are left out of what the model sees"
    assert text in frames.article_html(article(left_out=4, cut=True))
    assert text not in frames.article_html(article(left_out=4))


def test_a_failed_reply_has_its_reference_on_demand() -> None:
    html = frames.article_html(article(status="failed", error_message="No engine.", error_code="engine_unavailable"))
    assert "<summary>Details</summary>" in html
    assert f"req_{REQUEST}" in html


def test_one_s_own_message_can_be_edited_and_its_versions_looked_at() -> None:
    first, second = new_id(), new_id()
    html = frames.article_html(article(id=second, role="user", siblings=[first, second]))
    assert "data-edit" in html
    assert "2/2" in html
    assert f"msg_{first}" in html


def test_feedback_is_pressed_and_released() -> None:
    html = frames.feedback(UUID(int=7), -1)
    good, bad = html.split("bad-msg")
    assert 'aria-pressed="false"' in good
    assert '"value": 1' in good
    assert 'aria-pressed="true"' in bad
    assert '"value": 0' in bad
