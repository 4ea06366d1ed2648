"""What a page is told, as htmx fragments: each `<hx-partial>` names an element and how its content goes there.

Everything that a person or a model wrote is escaped here or in a template, or was cleaned by `markdown`. A reply goes
out as deltas, so that the bytes stay linear in its text. Frames that begin with `{` are for the page's scripts.

A web server closes a socket over whose limit a frame goes, and the page would ask for the same again. So what has no
bound of its own is made as parts, `pack` makes frames of them, and a part that is too large for one is left out: the
page then fetches that turn over HTTP.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import unescape
from uuid import UUID

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import escape, format_html, strip_tags

from chatsite.errors import AppError
from chatsite.ids import public_id
from conversations.articles import Article, Branch
from conversations.follow import Queued, Retrying, Token
from conversations.meters import Meters
from conversations.sidebar import Group
from inference.models import Model
from quotas.errors import QuotaExceeded

PING = '{"type": "ping"}'
FRAME_BYTES = 256 * 1024  # of a frame, about; servers take 1 MiB or more
SPOKEN_CHARS = 5_000  # of a finished reply; a screen reader cannot skip within an announcement
_SPOKEN_HTML = 8 * SPOKEN_CHARS
_CUT_MARKUP = re.compile(r"(?:<[^<>]*|&[^&;]*)\Z")  # a tag or a reference without its end
_DELTA_CHARS = 32 * 1024  # of a reply in one frame; escaped, a character takes up to six bytes
_DOTS = "conversations/dots.html"
LONGEST_COUNTDOWN = 900.0  # seconds
_AGAIN = re.compile(r" ?Try again in \d+ s\.\Z")  # how a sentence may end that programs read, too
_ID = re.compile(r"[0-9a-zA-Z-]{1,64}")  # what a page calls a message that it is sending


def partial(target: str, content: str, swap: str = "innerHTML") -> str:
    return f'<hx-partial hx-target="#{target}" hx-swap="{swap}">{content}</hx-partial>'


def pack(parts: Iterable[str], limit: int = FRAME_BYTES) -> list[str]:
    """The parts in their order, joined to few texts of at most `limit` bytes. A larger part stays whole."""
    packed: list[str] = []
    room = 0
    for part in filter(None, parts):
        size = len(part.encode())
        if size > room:
            packed.append("")
            room = limit
        packed[-1] += part
        room -= size
    return packed


# A reply's life


def deltas(message_id: UUID, event: Token) -> Iterator[str]:
    """`token` for a text of any length, as so many frames, each with the cursor behind its own piece."""
    begin = event.cursor.characters - len(event.text)
    for at in range(0, len(event.text), _DELTA_CHARS):
        text = event.text[at : at + _DELTA_CHARS]
        yield token(message_id, Token(text, replace(event.cursor, characters=begin + at + len(text))))


def token(message_id: UUID, event: Token) -> str:
    """The delta and the cursor behind it. A carriage return is written as a reference: parsers drop a bare one."""
    text = escape(event.text).replace("\r", "&#13;")
    delta = f'<span data-cursor="{event.cursor}">{text}</span>'
    return partial(f"source-{public_id('msg', message_id)}", delta, "beforeend")


def queued(event: Queued, model: str) -> str:
    """Where the reply stands in the queue, with a way to give up, or to take a model that is free."""
    message = public_id("msg", event.message_id)
    context = {
        "text": queue_text(event, model), "message": message, "loading": event.loading, "smaller": event.smaller,
    }  # fmt: skip
    return partial(f"note-{message}", render_to_string("conversations/queued.html", context))


def queue_text(event: Queued, model: str) -> str:
    wait = f", about {whole_seconds(event.eta)} s" if event.eta is not None else ""
    if event.late:
        wait = ", taking longer than expected"
    if event.loading:
        return f"{model} is loading{wait}"
    place = "Next in line" if event.position <= 1 else f"{ordinal(event.position)} in line"
    return place + wait


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def waiting(message_id: UUID) -> str:
    """Claimed by a runner, no token yet."""
    return partial(f"note-{public_id('msg', message_id)}", render_to_string(_DOTS))


def retrying(message_id: UUID, event: Retrying) -> str:
    return partial(f"note-{public_id('msg', message_id)}", "Reconnecting to another replica…")


def quiet(message_id: UUID) -> str:
    """Takes the note away: text arrives."""
    return partial(f"note-{public_id('msg', message_id)}", "")


def finished(conversation: str, article: Article) -> list[str]:
    """The reply as it ended, for eyes and ears. Renders Markdown: call it in a thread.

    One that is too large for a frame stays as it streamed until the page has fetched it.
    """
    html = article_html(article)
    if fits(html):
        shown = partial(article.public_id, html, "outerHTML")
    else:
        shown = partial(f"note-{article.public_id}", _fetched(conversation, article, whole=False))
    return pack([action(None), shown, announce(f"{spoken(article)} {article.outcome}".strip())])


def spoken(article: Article) -> str:
    """The beginning of a finished reply, as a screen reader says it."""
    html: str = article.html
    if len(html) > _SPOKEN_HTML:
        html = _CUT_MARKUP.sub("", html[:_SPOKEN_HTML])
    text = " ".join(unescape(strip_tags(html)).split())
    whole = len(text) <= SPOKEN_CHARS and len(html) == len(article.html)
    return text if whole else f"{text[:SPOKEN_CHARS]}…"


# The thread


def article_html(article: Article) -> str:
    return render_to_string("conversations/article.html", {"article": article})


def append(conversation: str, articles: Iterable[Article]) -> list[str]:
    """Parts of frames. Renders Markdown: call it in a thread."""
    return [partial("thread", _turn(conversation, article), "beforeend") for article in articles]


def _turn(conversation: str, article: Article) -> str:
    """As the page shows it, or, where that is too large for a frame, what fetches it."""
    html = article_html(article)
    return html if fits(html) else _fetched(conversation, article, whole=True)


def fits(html: str) -> bool:
    return len(html.encode()) <= FRAME_BYTES


def _fetched(conversation: str, article: Article, *, whole: bool) -> str:
    """A button that presses itself. `whole`: with a turn around it."""
    context = {"conversation": conversation, "article": article, "whole": whole}
    return render_to_string("conversations/fetched.html", context)


def confirm(sending: str) -> str:
    """Takes away what the page shows of a message that it is sending: the real one is in the same frame."""
    return partial(f"sending-{sending}", "", "delete") if _ID.fullmatch(sending) else ""


def feedback(message_id: UUID, value: int) -> str:
    message = public_id("msg", message_id)
    html = render_to_string("conversations/feedback.html", {"message": message, "feedback": value})
    return partial(f"feedback-{message}", html, "outerHTML")


def around(article: Article) -> str:
    """Its versions and its feedback, anew."""
    versions = render_to_string("conversations/versions.html", {"article": article})
    told = partial(f"versions-{article.public_id}", versions, "outerHTML")
    return told + feedback(article.id, article.feedback) if article.role == "assistant" and article.text else told


def remove(message_id: UUID) -> str:
    return partial(public_id("msg", message_id), "", "delete")


def thread(conversation: str, branch: Branch) -> list[str]:
    """Parts of frames: the first empties the thread. Renders Markdown: call it in a thread."""
    page = {"conversation": conversation, "earlier": branch.earlier}
    earlier = render_to_string("conversations/thread.html", {"page": page})
    first, *more = pack([earlier, *(_turn(conversation, article) for article in branch.articles)]) or [""]
    return [partial("thread", first), *(partial("thread", turns, "beforeend") for turns in more)]


# Around it


def action(running: UUID | None) -> str:
    """Send, or Stop while a reply runs."""
    context = {"running": public_id("msg", running) if running else None}
    return partial("composer-slot", render_to_string("conversations/composer_action.html", context))


def announce(text: str) -> str:
    """For screen readers: once when a reply begins and once when it ends, never token by token."""
    return partial("announcer", escape(text))


def model(name: str) -> str:
    """For the scripts: the model that was chosen elsewhere for this conversation."""
    return json.dumps({"type": "model_changed", "name": name})


def title(text: str) -> str:
    return partial("title", escape(text))


def conversations(groups: Sequence[Group], current: str) -> str:
    html = render_to_string("conversations/conversations.html", {"groups": groups, "current": current})
    return partial("conversations", html, "outerHTML")


def meters(found: Meters) -> str:
    return partial("meters", render_to_string("conversations/meters.html", {"meters": found}), "outerHTML")


def notice(text: str, retry_after: float | None = None, *, over_quota: bool = False) -> str:
    """One sentence of what happened, and the seconds until it may be tried again, which the page counts down.

    `over_quota`: with a link to what is left.
    """
    context = {"text": _once(text, retry_after), "seconds": countdown(retry_after), "over_quota": over_quota}
    return partial("notice", render_to_string("conversations/notice.html", context) if text else "")


def refusal(error: AppError, smaller: Model | None = None) -> str:
    """`notice` as it is written into a page, for those without scripts. With them, `smaller` may be taken instead."""
    seconds = countdown(error.retry_after)
    again = "" if seconds is None else f" Try again in {seconds} s."
    said = _once(error.message, error.retry_after)
    if not is_over_quota(error):
        return format_html("{}{}{}", said, again, _instead(smaller) if smaller else "")
    return format_html('{} <a href="{}#limits">See your usage</a>{}', said, reverse("usage"), again)


def _instead(smaller: Model) -> str:
    html = ' <button type="button" class="quiet" data-smaller="{}" hidden>Use {} instead</button>'
    return format_html(html, smaller.name, smaller.title or smaller.name)


def _once(sentence: str, retry_after: float | None) -> str:
    """Without the seconds where they are counted down beside it."""
    return sentence if countdown(retry_after) is None else _AGAIN.sub("", sentence)


def is_over_quota(error: AppError) -> bool:
    """Whether a limit is used up, so that it helps to see what is left."""
    return isinstance(error, QuotaExceeded)


def countdown(retry_after: float | None) -> int | None:
    """Whole seconds to wait; None where nobody sits and waits: of a budget, the sentence names the day."""
    return None if retry_after is None or retry_after > LONGEST_COUNTDOWN else whole_seconds(retry_after)


def whole_seconds(seconds: float) -> int:
    """1 at least."""
    return max(1, math.ceil(seconds))


# For the scripts, which keep what was written


def accepted(sending: str | None) -> str:
    return json.dumps({"type": "accepted", "id": sending})


def refused(error: AppError, sending: str | None = None, smaller: Model | None = None) -> str:
    """`smaller`: a model that would take the message instead."""
    about = {
        "id": sending,
        "code": error.code,
        "message": _once(error.message, error.retry_after),
        "retry_after": countdown(error.retry_after),
    }
    usage = {"usage": f"{reverse('usage')}#limits"} if is_over_quota(error) else {}
    offer = {"smaller": {"name": smaller.name, "title": smaller.title or smaller.name}} if smaller else {}
    return json.dumps({"type": "refused", **about, **usage, **offer})
