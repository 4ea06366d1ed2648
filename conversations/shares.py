"""Sharing: a conversation as it was at one moment, read-only, for whoever has its address."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import prefetch_related_objects
from django.utils import timezone

from chatsite.accounts.protocol import Principal
from chatsite.errors import InvalidInput, NotFound
from conversations import selectors
from conversations.articles import Article
from conversations.models import Conversation, Message, Share
from conversations.selectors import RUNNING, branch, read_sql
from conversations.sidebar import UNTITLED

SHARED_TURNS: Final = 100  # on one page
MAX_TURNS: Final = 10_000
MAX_TOKEN: Final = 32  # characters


@dataclass(frozen=True)
class Shared:
    """One page of a shared conversation. Nothing in it says whose it is."""

    title: str
    shared_at: datetime
    articles: list[Article]
    number: int  # of the page; 1 is the beginning
    pages: int


# Writing


def create_share(principal: Principal, conversation_id: UUID) -> Share:
    """The address of the active branch as it is now, up to its last finished reply.

    Asked again before anything was added, it is the same. Raises NotFound, and InvalidInput while there is no such
    reply.
    """
    with transaction.atomic():
        rows = selectors.conversations_of(principal).select_for_update().filter(id=conversation_id)
        conversation = next(iter(rows), None)
        if conversation is None:
            raise NotFound
        leaf = _last_finished(conversation)
        if leaf is None:
            raise InvalidInput("There is no finished reply to share yet.")
        turns, lengths = _branch(conversation, leaf)
        same = conversation.shares.filter(leaf=leaf, lengths=lengths, revoked_at=None).first()
        title = conversation.title
        return same or conversation.shares.create(leaf=leaf, title=title, turns=turns, lengths=lengths)


def _branch(conversation: Conversation, leaf: Message) -> tuple[list[UUID], list[int]]:
    """The turns up to `leaf`, oldest first, and how many characters each has now."""
    with connection.cursor() as cursor:
        parameters: dict[str, Any] = {"conversation": conversation.id, "leaf": leaf.id, "limit": MAX_TURNS}
        cursor.execute(read_sql("branch_ids"), parameters)
        rows = cursor.fetchall()
    return [row[0] for row in rows], [row[1] for row in rows]


def _last_finished(conversation: Conversation) -> Message | None:
    """A running reply, and the question that it answers, are not shared."""
    newest = branch(conversation.id, conversation.active_leaf_id, 4)
    return next((turn for turn in newest if turn.role == Message.Role.ASSISTANT and turn.status not in RUNNING), None)


def revoke_share(principal: Principal, token: str) -> Share:
    """Its address leads nowhere from now on. Idempotent. Raises NotFound."""
    share = _by_token(token)
    if share is None:
        raise NotFound
    selectors.get_conversation(principal, share.conversation_id)
    if share.revoked_at is None:
        share.revoked_at = timezone.now()
        share.save(update_fields=["revoked_at"])
    return share


# Reading


@dataclass(frozen=True)
class Links:
    """The shares of a conversation that can be read, newest first."""

    shares: list[Share]
    up_to_date: bool  # one of them has all that could be shared now


def links_of(principal: Principal, conversation_id: UUID) -> Links:
    """Raises NotFound."""
    conversation = selectors.get_conversation(principal, conversation_id)
    shares = list(conversation.shares.filter(revoked_at=None).order_by("-created_at"))
    leaf = _last_finished(conversation)
    return Links(shares, leaf is not None and any(_has_all_of(share, leaf) for share in shares))


def _has_all_of(share: Share, leaf: Message) -> bool:
    return share.leaf_id == leaf.id and share.lengths[-1:] == [len(leaf.content)]


def read_shared(token: str, number: int = 1) -> Shared:
    """Page `number` of what is at this address. Raises NotFound when it is unknown, was revoked or has no such page."""
    share = _by_token(token)
    if share is None or share.revoked_at is not None:
        raise NotFound
    pages = max(1, -(-len(share.turns) // SHARED_TURNS))
    if not 1 <= number <= pages:
        raise NotFound
    start = (number - 1) * SHARED_TURNS
    shown = slice(start, start + SHARED_TURNS)
    articles = _articles(dict(zip(share.turns[shown], share.lengths[shown], strict=True)))
    return Shared(share.title or UNTITLED, share.created_at, articles, number, pages)


def _by_token(token: str) -> Share | None:
    if len(token) > MAX_TOKEN or "\0" in token:
        return None
    return Share.objects.filter(token=token).first()


def _articles(lengths: Mapping[UUID, int]) -> list[Article]:
    """The turns, each with as many characters as it had."""
    found = Message.objects.in_bulk(list(lengths))
    messages = [found[each] for each in lengths if each in found]
    prefetch_related_objects(messages, "model")
    return [_article(message, lengths[message.id]) for message in messages]


def _article(message: Message, length: int) -> Article:
    """How a reply ended is shown only while it has not been continued since."""
    as_it_was = len(message.content) == length and message.status not in RUNNING
    return Article(
        id=message.id,
        role=message.role,
        text=message.content[:length],
        status=message.status if as_it_was else "complete",
        model=str(message.model or ""),
        finish_reason=message.finish_reason if as_it_was else "",
        error_code=message.error_code if as_it_was else "",
        error_message=message.error_message if as_it_was else "",
    )
