"""Messages as the page shows them: what the templates need, read in a handful of queries."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q, prefetch_related_objects
from django.utils.safestring import SafeString

from chatsite.accounts.protocol import Principal
from chatsite.ids import public_id
from conversations import selectors
from conversations.follow import retryable
from conversations.markdown import render_markdown
from conversations.models import Message, MessageStatus
from conversations.selectors import Reply
from inference.protocol import Cursor, FinishReason

PAGE_SIZE = 50  # turns that a page opens with
RUNNING_CHARS = 32 * 1024  # of a running reply that a page opens with; the rest is streamed to it
NOT_STARTED = UUID(int=0)  # in a cursor: of no request yet. A pending reply's Started event is still to come.


class Around(NamedTuple):
    """What is shown below a turn and may change while its text stays: which version of how many, and feedback."""

    version: int
    versions: int
    feedback: int


@dataclass(frozen=True)
class Article:
    """A turn. `text` is plain, and of a running reply only its beginning where it is long: `cursor` says how far.
    `html` of a finished reply is safe to show; it is rendered when it is first read, which must be in a thread."""

    id: UUID
    role: str
    text: str
    status: str
    model: str = ""  # its title
    request_id: UUID | None = None
    cursor: Cursor | None = None  # of a running reply: behind `text`
    finish_reason: str = ""
    error_code: str = ""
    error_message: str = ""
    left_out: int = 0  # earlier turns that the model did not see
    cut: bool = False  # whether that is more than at the reply before
    feedback: int = 0
    siblings: Sequence[UUID] = ()

    @property
    def public_id(self) -> str:
        return public_id("msg", self.id)

    @property
    def reference(self) -> str:
        """What an operator finds the reply by."""
        return public_id("req", self.request_id) if self.request_id else ""

    @cached_property
    def html(self) -> SafeString:
        return render_markdown(self.text)

    @property
    def running(self) -> bool:
        return self.status in selectors.RUNNING

    @property
    def outcome(self) -> str:
        """How the reply ended, when it did not simply end."""
        if self.status == MessageStatus.FAILED:
            return self.error_message or "The reply failed."
        if self.status == MessageStatus.STOPPED:
            return "Stopped"
        return {FinishReason.LENGTH: "Reached the length limit", FinishReason.QUOTA: "The quota is used up"}.get(
            FinishReason(self.finish_reason) if self.finish_reason else FinishReason.STOP, ""
        )

    @property
    def continuable(self) -> bool:
        """Whether there is something to go on from, and a chance that it works."""
        if not self.text:
            return False
        if self.status == MessageStatus.FAILED:
            return retryable(self.error_code)
        return self.status == MessageStatus.STOPPED or self.finish_reason == FinishReason.LENGTH

    @property
    def around(self) -> "Around":
        return Around(self.version, len(self.siblings), self.feedback)

    @property
    def version(self) -> int:
        """1 is the oldest."""
        return self.siblings.index(self.id) + 1 if self.id in self.siblings else 1

    @property
    def previous_version(self) -> str | None:
        return public_id("msg", self.siblings[self.version - 2]) if self.version > 1 else None

    @property
    def next_version(self) -> str | None:
        return public_id("msg", self.siblings[self.version]) if self.version < len(self.siblings) else None


@dataclass(frozen=True)
class Branch:
    """The end of a conversation's active branch, oldest first. `earlier`: the cursor of what comes before. `model`: the
    id of the one that is chosen for what is sent next."""

    articles: list[Article]
    earlier: str | None = None
    model: str = ""

    @property
    def running(self) -> Article | None:
        last = self.articles[-1] if self.articles else None
        return last if last and last.running else None


def load_branch(principal: Principal, conversation_id: UUID, cursor: str | None = None) -> Branch:
    """Raises NotFound, and InvalidInput for a cursor of another conversation."""
    conversation = selectors.get_conversation(principal, conversation_id)
    page = selectors.active_branch(conversation, cursor, PAGE_SIZE)
    return Branch(_articles(principal, list(reversed(page.data))), page.next_cursor, conversation.model_id)


def load_article(principal: Principal, message_id: UUID) -> Article:
    """Raises NotFound."""
    return _articles(principal, [selectors.get_message(principal, message_id)])[0]


def _articles(principal: Principal, messages: list[Message]) -> list[Article]:
    """`messages`: along a branch, oldest first."""
    prefetch_related_objects(messages, "model")
    siblings = _siblings(messages)
    left_out = _left_out_before(messages[0]) if any(message.left_out for message in messages) else 0
    found = []
    for message in messages:
        same_turn = siblings[message.parent_id, message.role]
        article = _article(principal, message, same_turn)
        if article.left_out > left_out:
            article = replace(article, cut=True)
        left_out = max(left_out, article.left_out)
        found.append(article)
    return found


def _left_out_before(first: Message) -> int:
    """What the reply ahead of `first`, a turn of either side, had left out."""
    above = Q(id=first.parent_id) | Q(children__children=first.id)
    found = Message.objects.filter(above, role=Message.Role.ASSISTANT).values_list("left_out", flat=True).first()
    return found or 0


def _article(principal: Principal, message: Message, siblings: Sequence[UUID]) -> Article:
    if message.role == Message.Role.USER:
        return Article(message.id, message.role, message.content, message.status, siblings=siblings)
    if message.status in selectors.RUNNING:
        reply = selectors.get_reply(principal, message.id)  # it may have ended since the branch was read
        return _reply_article(message, reply, siblings)
    return _reply_article(message, None, siblings)


def _reply_article(message: Message, reply: Reply | None, siblings: Sequence[UUID]) -> Article:
    source = reply or message
    text = reply.text if reply else message.content
    return Article(
        id=message.id,
        role=message.role,
        text=text if source.status not in selectors.RUNNING else text[:RUNNING_CHARS],
        status=source.status,
        model=str(message.model or ""),
        request_id=source.request_id,
        cursor=shown_cursor(reply) if reply and not reply.terminal else None,
        finish_reason=source.finish_reason,
        error_code=source.error_code,
        error_message=source.error_message,
        left_out=message.left_out,
        feedback=message.feedback,
        siblings=siblings,
    )


def shown_cursor(reply: Reply) -> Cursor:
    """Where a reader stands who is shown the first `RUNNING_CHARS` of `reply.text`."""
    request_id = NOT_STARTED if reply.status == MessageStatus.PENDING else reply.request_id
    return Cursor(request_id, reply.tokens, min(len(reply.text), RUNNING_CHARS))


Turn = tuple[UUID | None, str]  # what it follows, and who speaks


def _siblings(messages: Sequence[Message]) -> dict[Turn, list[UUID]]:
    """The versions of each turn, oldest first."""
    if not messages:
        return {}
    parents = {message.parent_id for message in messages}
    same = Q(parent_id__in=parents - {None})
    if None in parents:
        same |= Q(parent_id=None)
    rows = Message.objects.filter(same, conversation_id=messages[0].conversation_id).order_by("created_at", "id")
    found: dict[Turn, list[UUID]] = defaultdict(list)
    for parent, role, message_id in rows.values_list("parent_id", "role", "id"):
        found[parent, role].append(message_id)
    return found
