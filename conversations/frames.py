"""What a page is told, as htmx fragments: each `<hx-partial>` names an element and how its content goes there.

Everything that a person or a model wrote is escaped here or in a template, or was cleaned by `markdown`. A reply goes
out as deltas, so that the bytes stay linear in its text. Frames that begin with `{` are for the page's scripts.
"""

import json
import math
import re
from collections.abc import Sequence
from html import unescape
from uuid import UUID

from django.template.loader import render_to_string
from django.utils.html import escape, strip_tags

from chatsite.errors import AppError
from chatsite.ids import public_id
from conversations.articles import Article, Branch
from conversations.follow import Queued, Retrying, Token
from conversations.meters import Meters
from conversations.sidebar import Group

PING = '{"type": "ping"}'
_DOTS = "conversations/dots.html"
_ID = re.compile(r"[0-9a-zA-Z-]{1,64}")  # what a page calls a message that it is sending


def partial(target: str, content: str, swap: str = "innerHTML") -> str:
    return f'<hx-partial hx-target="#{target}" hx-swap="{swap}">{content}</hx-partial>'


# A reply's life


def token(message_id: UUID, event: Token) -> str:
    """The delta and the cursor behind it. A carriage return is written as a reference: parsers drop a bare one."""
    text = escape(event.text).replace("\r", "&#13;")
    delta = f'<span data-cursor="{event.cursor}">{text}</span>'
    return partial(f"source-{public_id('msg', message_id)}", delta, "beforeend")


def queued(event: Queued, model: str) -> str:
    """Where the reply stands in the queue, with a way to give up."""
    message = public_id("msg", event.message_id)
    context = {"text": queue_text(event, model), "message": message, "loading": event.loading}
    return partial(f"note-{message}", render_to_string("conversations/queued.html", context))


def queue_text(event: Queued, model: str) -> str:
    wait = f", about {whole_seconds(event.eta)} s" if event.eta is not None else ""
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


def finished(article: Article) -> str:
    """The reply as it ended, for eyes and ears."""
    spoken = " ".join(unescape(strip_tags(article.html)).split())
    return replace(article) + action(None) + announce(f"{spoken} {article.outcome}".strip())


# The thread


def article_html(article: Article) -> str:
    return render_to_string("conversations/article.html", {"article": article})


def append(articles: Sequence[Article]) -> str:
    return "".join(partial("thread", article_html(article), "beforeend") for article in articles)


def replace(article: Article) -> str:
    return partial(article.public_id, article_html(article), "outerHTML")


def confirm(sending: str) -> str:
    """Takes away what the page shows of a message that it is sending: the real one is in the same frame."""
    return partial(f"sending-{sending}", "", "delete") if _ID.fullmatch(sending) else ""


def feedback(message_id: UUID, value: int) -> str:
    message = public_id("msg", message_id)
    html = render_to_string("conversations/feedback.html", {"message": message, "feedback": value})
    return partial(f"feedback-{message}", html, "outerHTML")


def remove(message_id: UUID) -> str:
    return partial(public_id("msg", message_id), "", "delete")


def thread(conversation: str, branch: Branch) -> str:
    page = {"conversation": conversation, "earlier": branch.earlier, "articles": branch.articles}
    return partial("thread", render_to_string("conversations/thread.html", {"page": page}))


# Around it


def action(running: UUID | None) -> str:
    """Send, or Stop while a reply runs."""
    context = {"running": public_id("msg", running) if running else None}
    return partial("composer-slot", render_to_string("conversations/composer_action.html", context))


def announce(text: str) -> str:
    """For screen readers: once when a reply begins and once when it ends, never token by token."""
    return partial("announcer", escape(text))


def title(text: str) -> str:
    return partial("title", escape(text))


def conversations(groups: Sequence[Group], current: str) -> str:
    html = render_to_string("conversations/conversations.html", {"groups": groups, "current": current})
    return partial("conversations", html, "outerHTML")


def meters(found: Meters) -> str:
    return partial("meters", render_to_string("conversations/meters.html", {"meters": found}), "outerHTML")


def notice(text: str, retry_after: float | None = None) -> str:
    """One sentence of what happened, and the seconds until it may be tried again, which the page counts down."""
    seconds = None if retry_after is None else whole_seconds(retry_after)
    html = render_to_string("conversations/notice.html", {"text": text, "seconds": seconds}) if text else ""
    return partial("notice", html)


def refusal(error: AppError) -> str:
    """`notice` as plain text, for those without scripts."""
    if error.retry_after is None:
        return error.message
    return f"{error.message} Try again in {whole_seconds(error.retry_after)} s."


def whole_seconds(seconds: float) -> int:
    """1 at least."""
    return max(1, math.ceil(seconds))


# For the scripts, which keep what was written


def accepted(sending: str | None) -> str:
    return json.dumps({"type": "accepted", "id": sending})


def refused(error: AppError, sending: str | None = None) -> str:
    seconds = None if error.retry_after is None else whole_seconds(error.retry_after)
    about = {"id": sending, "code": error.code, "message": error.message, "retry_after": seconds}
    return json.dumps({"type": "refused", **about})
