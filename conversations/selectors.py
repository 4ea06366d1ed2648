"""Reads of conversations and messages. Whatever is not the caller's is not found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import Q, QuerySet

from chatsite.accounts.protocol import Principal
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import parse_id, public_id
from conversations.models import Conversation, Message
from inference import selectors as inference_selectors
from inference.protocol import Cursor, Usage

T = TypeVar("T")
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
NO_USAGE = Usage(0, 0, 0)
RUNNING = frozenset({"pending", "streaming"})


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some of a list. `next_cursor` is None at its end."""

    data: Sequence[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Reply:
    """An assistant message as it is stored at one moment: its row, and what is saved of a running one."""

    message_id: UUID
    user_message_id: UUID | None
    request_id: UUID
    status: str
    text: str
    tokens: int  # of `text`
    base_chars: int  # characters that were there before the running request
    finish_reason: str = ""
    usage: Usage = NO_USAGE
    error_code: str = ""
    error_message: str = ""

    @property
    def terminal(self) -> bool:
        return self.status not in RUNNING


# Conversations


def organization_of(user_id: UUID, conversation_id: UUID) -> UUID | None:
    """The organization of a conversation of this user, whichever it is; None when it is not theirs."""
    found = Conversation.objects.filter(id=conversation_id, user_id=user_id)
    return found.values_list("organization_id", flat=True).first()


def conversations_of(principal: Principal) -> QuerySet[Conversation]:
    return Conversation.objects.filter(user_id=principal.user_id, organization_id=principal.organization_id)


def get_conversation(principal: Principal, conversation_id: UUID) -> Conversation:
    """Raises NotFound."""
    conversation = next(iter(conversations_of(principal).filter(id=conversation_id)), None)  # `first` would order
    if conversation is None:
        raise NotFound
    return conversation


def list_conversations(principal: Principal, cursor: str | None = None, limit: int = PAGE_SIZE) -> Page[Conversation]:
    """The caller's conversations, last used first. Raises InvalidInput for a malformed cursor."""
    return page_of_conversations(conversations_of(principal), cursor, limit)


def page_of_conversations(rows: QuerySet[Conversation], cursor: str | None, limit: int) -> Page[Conversation]:
    """Of `rows`, last used first. Raises InvalidInput for a malformed cursor."""
    rows = rows.order_by("-updated_at", "-id")
    if cursor:
        moment, last = parse_moment(cursor)
        rows = rows.filter(Q(updated_at__lt=moment) | Q(updated_at=moment, id__lt=last))
    return _page(list(rows[: limit + 1]), limit, _moment)


# Messages


def messages_of(principal: Principal) -> QuerySet[Message]:
    return Message.objects.filter(
        conversation__user_id=principal.user_id, conversation__organization_id=principal.organization_id
    )


def get_message(principal: Principal, message_id: UUID) -> Message:
    """The message with its conversation. Raises NotFound."""
    message = messages_of(principal).select_related("conversation").filter(id=message_id).first()
    if message is None:
        raise NotFound
    return message


def read_message(principal: Principal, message_id: UUID) -> Message:
    """The message as callers see it: a running one has all the text that is saved. Raises NotFound."""
    return with_current_text([get_message(principal, message_id)])[0]


def with_current_text(messages: Sequence[Message]) -> list[Message]:
    """The same messages; the content of a running one is all that is saved of it. Not to be saved again."""
    return [_with_saved_text(message) if message.status in RUNNING else message for message in messages]


def _with_saved_text(message: Message) -> Message:
    """Saved pieces vanish when a reply ends: unless it still runs after they were read, its row has the text."""
    while message.status in RUNNING and message.request_id:
        saved = inference_selectors.partial_text(message.request_id).text
        now = Message.objects.filter(id=message.id).first()
        if now is None or (now.status in RUNNING and now.request_id == message.request_id):
            message.content += saved
            return message
        message = now
    return message


def active_branch(conversation: Conversation, cursor: str | None = None, limit: int = PAGE_SIZE) -> Page[Message]:
    """The branch that ends in the active leaf, newest first. `cursor`: the last message that the caller has.

    Raises InvalidInput for a cursor that is malformed or of another conversation.
    """
    leaf = conversation.active_leaf_id
    if cursor:
        leaf = _message_in(conversation, cursor).parent_id
    found = branch(conversation.id, leaf, limit + 1)
    return _page(found, limit, lambda row: public_id("msg", row.id))


def tree(conversation: Conversation, cursor: str | None = None, limit: int = PAGE_SIZE) -> Page[Message]:
    """All messages of a conversation with their siblings, newest first. Raises as `active_branch`."""
    rows = conversation.messages.order_by("-created_at", "-id")
    if cursor:
        last = _message_in(conversation, cursor)
        rows = rows.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, id__lt=last.id))
    return _page(list(rows[: limit + 1]), limit, lambda row: public_id("msg", row.id))


def branch(conversation_id: UUID, leaf: UUID | None, limit: int) -> list[Message]:
    """`leaf` and its ancestors, nearest first, `limit` at most."""
    if leaf is None:
        return []
    parameters = {"conversation": conversation_id, "leaf": leaf, "limit": limit}
    return list(Message.objects.raw(read_sql("branch"), parameters))


def siblings(message: Message) -> list[UUID]:
    """The versions of a turn in the order they were made, `message` among them."""
    rows = Message.objects.filter(
        conversation_id=message.conversation_id, parent_id=message.parent_id, role=message.role
    )
    return list(rows.order_by("created_at", "id").values_list("id", flat=True))


# Replies


def get_reply(principal: Principal, message_id: UUID, cursor: Cursor | None = None) -> Reply:
    """Raises NotFound, and InvalidInput for a message that is no reply or a cursor of another message."""
    message = get_message(principal, message_id)
    if message.role != Message.Role.ASSISTANT:
        raise InvalidInput("This message is not a reply.")
    if cursor is not None and not _belongs(cursor, message):
        raise InvalidInput("The cursor belongs to another message.", param="after")
    return _reply(message)


def reread_reply(reply: Reply) -> Reply | None:
    """The same reply as it is now, None when it is gone."""
    message = Message.objects.filter(id=reply.message_id).first()
    return None if message is None else _reply(message)


def _reply(message: Message) -> Reply:
    if message.request_id is None:
        raise NotFound
    stored = Reply(
        message_id=message.id,
        user_message_id=message.parent_id,
        request_id=message.request_id,
        status=message.status,
        text=message.content,
        tokens=message.tokens,
        base_chars=len(message.content),
        finish_reason=message.finish_reason,
        usage=Usage(message.usage_input, message.usage_cached, message.usage_output),
        error_code=message.error_code,
        error_message=message.error_message,
    )
    if stored.terminal:
        return stored
    partial = inference_selectors.partial_text(message.request_id)
    if not partial.text:
        return stored
    return replace(stored, text=stored.text + partial.text, tokens=partial.tokens)


def _belongs(cursor: Cursor, message: Message) -> bool:
    if cursor.request_id == message.request_id:
        return True
    earlier = inference_selectors.request_summary(cursor.request_id, message.conversation.organization_id)
    return earlier is not None and earlier["owner_id"] == message.id


# Cursors


def _message_in(conversation: Conversation, cursor: str) -> Message:
    message_id = parse_id("msg", cursor)
    message = conversation.messages.filter(id=message_id).first() if message_id else None
    if message is None:
        raise InvalidInput("The cursor is not one of this list.", param="cursor")
    return message


def _page(found: list[T], limit: int, cursor_of: Callable[[T], str]) -> Page[T]:
    """`found` holds one more than `limit` where the list goes on."""
    return Page(found[:limit], cursor_of(found[limit - 1]) if len(found) > limit else None)


def _moment(row: Conversation) -> str:
    return f"{row.updated_at.isoformat().replace('+00:00', 'Z')}_{row.id}"  # a plus sign would be a space in a query


def parse_moment(cursor: str) -> tuple[datetime, UUID]:
    """Where a cursor of `page_of_conversations` stands. Raises InvalidInput."""
    moment, _, last = cursor.partition("_")
    try:
        parsed, last_id = datetime.fromisoformat(moment), UUID(last)
        if parsed.tzinfo is None:
            raise ValueError
        return parsed.astimezone(UTC), last_id
    except (ValueError, OverflowError):  # the latter: in UTC it would be before year 1, or after 9999
        raise InvalidInput("The cursor is not one of this list.", param="cursor") from None


@cache
def read_sql(name: str) -> str:
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text()
