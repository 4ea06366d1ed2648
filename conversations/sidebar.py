"""The list of conversations beside the page, and the search in it."""

import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone
from psycopg.errors import QueryCanceled

from chatsite.accounts.protocol import Principal
from chatsite.errors import InvalidInput
from chatsite.ids import public_id
from conversations import selectors
from conversations.models import Conversation, Message
from conversations.selectors import read_sql

SIDEBAR_SIZE: Final = 100
UNTITLED: Final = "New chat"
MAX_QUERY: Final = 200  # characters
MAX_FOUND: Final = 30  # conversations
SEARCH_SECONDS: Final = 2.0  # for the text of all messages; after that the titles must do
_MARKS: Final = re.compile(r"\*\*|```\w*|`|^#+ | #+ ")
SNIPPET_AHEAD, SNIPPET_BEHIND = 40, 80  # characters around what was found


@dataclass(frozen=True)
class Row:
    """`state`: "replying", "unread" or empty."""

    id: str
    title: str
    state: str = ""


@dataclass(frozen=True)
class Group:
    """Conversations of a time, such as Today. `continued`: its heading was on an earlier page. `more`: the cursor of
    what comes after, on the last group where the list goes on."""

    label: str
    rows: list[Row] = field(default_factory=list)
    continued: bool = False
    more: str | None = None


@dataclass(frozen=True)
class Found:
    """A conversation with what was searched for. The three parts of the snippet are empty when its title has it."""

    id: str
    title: str
    before: str = ""
    match: str = ""
    after: str = ""


@dataclass(frozen=True)
class Findings:
    """`whole` False: there was no time to search the messages."""

    rows: list[Found]
    whole: bool = True


def title_of(conversation: Conversation) -> str:
    return conversation.title or UNTITLED


# The list


def load_groups(principal: Principal, cursor: str | None = None) -> list[Group]:
    """The conversations that were used last, or those after `cursor`. One query.

    Raises InvalidInput for a malformed cursor.
    """
    rows = (
        selectors.conversations_of(principal)
        .defer("system_prompt")
        .annotate(
            leaf_role=F("active_leaf__role"),
            leaf_status=F("active_leaf__status"),
            leaf_request=F("active_leaf__request_id"),
        )
    )
    page = selectors.page_of_conversations(rows, cursor, SIDEBAR_SIZE)
    today = timezone.localdate()
    above = age_label(timezone.localdate(selectors.parse_moment(cursor)[0]), today) if cursor else ""
    groups: dict[str, list[Row]] = {}
    for conversation in page.data:
        row = Row(public_id("conv", conversation.id), title_of(conversation), _state_of(conversation))
        groups.setdefault(age_label(timezone.localdate(conversation.updated_at), today), []).append(row)
    last = next(reversed(groups), "")
    return [
        Group(label, rows, continued=label == above, more=page.next_cursor if label == last else None)
        for label, rows in groups.items()
    ]


def _state_of(conversation: Any) -> str:
    if conversation.leaf_role != Message.Role.ASSISTANT:
        return ""
    if conversation.leaf_status in selectors.RUNNING:
        return "replying"
    return "unread" if conversation.leaf_request != conversation.seen_request else ""


def age_label(day: date, today: date) -> str:
    """Today, Yesterday, Previous 7 days, or the month."""
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day >= today - timedelta(days=7):
        return "Previous 7 days"
    return f"{day:%B %Y}"


# Searching


def search(principal: Principal, query: str) -> Findings:
    """Conversations of the caller with `query` in their title, then those with it in a message; MAX_FOUND at most.

    Upper and lower case are the same, and every character means itself. Raises InvalidInput.
    """
    words = " ".join(query.split())
    check_query(words)
    if not words:
        return Findings([])
    named = selectors.conversations_of(principal).filter(title__icontains=words).order_by("-updated_at", "-id")
    titles = dict(named.values_list("id", "title")[:MAX_FOUND])
    rows = [Found(public_id("conv", found), title) for found, title in titles.items()]
    left = MAX_FOUND - len(rows)
    if not left:
        return Findings(rows)
    try:
        return Findings(rows + _search_text(principal, words, set(titles), left))
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        return Findings(rows, whole=False)


def check_query(query: str) -> None:
    """Raises InvalidInput."""
    if len(query) > MAX_QUERY:
        raise InvalidInput(f"Search for {MAX_QUERY} characters at most.", param="q")
    if "\0" in query:
        raise InvalidInput("The search contains a NUL character.", param="q")


def _search_text(principal: Principal, words: str, known: set[UUID], limit: int) -> list[Found]:
    parameters: dict[str, Any] = {
        "user": principal.user_id,
        "organization": principal.organization_id,
        "known": list(known),
        "words": words,
        "pattern": f"%{escape_like(words)}%",
        "ahead": SNIPPET_AHEAD,
        "length": SNIPPET_AHEAD + len(words) + SNIPPET_BEHIND,
        "limit": limit,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {round(SEARCH_SECONDS * 1000)}")
        cursor.execute(read_sql("search"), parameters)
        return [_found(found, title, excerpt, words) for found, title, excerpt in cursor.fetchall()]


def escape_like(text: str) -> str:
    r"""So that `%`, `_` and `\` mean themselves in a LIKE pattern."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


def _found(conversation_id: UUID, title: str, excerpt: str, words: str) -> Found:
    text = " ".join(excerpt.split())
    at = text.lower().find(words.lower())
    if at < 0:  # lower case may be longer than upper case, or the text has a line break there
        at, words = 0, ""
    end = at + len(words)
    before, after = _plain(text[:at]), _plain(text[end:])
    if at >= SNIPPET_AHEAD // 2:  # it may begin within a word
        before = "…" + before.partition(" ")[2]
    return Found(public_id("conv", conversation_id), title or UNTITLED, before, text[at:end], after)


def _plain(text: str) -> str:
    """Without the marks of Markdown that stand out most."""
    return _MARKS.sub("", text)
