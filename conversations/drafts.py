"""What a reply is made from, read before it is promised, and the rows that promise it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from chatsite.accounts.protocol import Principal
from chatsite.errors import InvalidInput, NotFound
from chatsite.status import move
from chatsite.text_checks import clean_line
from conversations import selectors
from conversations.errors import NotContinuable, NotWaiting, ReplyRunning
from conversations.models import Conversation, Message, MessageStatus
from conversations.prompting import Row, load_branch, system_text
from conversations.selectors import RUNNING
from inference import selectors as inference_selectors
from inference.models import Model
from inference.protocol import Cursor, Role
from quotas.selectors import PlanLimits, plan_of

TITLE_CHARACTERS: Final = 60
# Called in the transaction that writes a reply, with its id and the cursor behind which a continued one goes on.
Remember = Callable[[UUID, Cursor | None], None]


class Branch(Enum):
    """Where a message goes when its caller does not say."""

    ACTIVE = "active"  # behind the active leaf


@dataclass(frozen=True)
class Draft:
    """What a reply is made from. `rows`: the branch above it, oldest first."""

    conversation: Conversation
    plan: PlanLimits
    model: Model
    rows: list[Row]

    @property
    def system(self) -> str:
        return system_text(self.model, self.conversation.system_prompt)


# Reading


def load_send(
    principal: Principal, conversation_id: UUID, model: str | None, parent: UUID | Branch | None = Branch.ACTIVE
) -> Draft:
    """For a new message under `parent`. Raises NotFound, InvalidInput, UnknownModel, ModelNotAllowed, ReplyRunning."""
    conversation = selectors.get_conversation(principal, conversation_id)
    plan, found = _model(principal, model or conversation.model_id)
    leaf = conversation.active_leaf_id if isinstance(parent, Branch) else parent
    rows = load_branch(conversation.id, leaf)
    if rows and rows[-1].running:
        raise ReplyRunning  # one that runs in another branch is found by the constraint, when the rows are written
    if leaf is not None and not rows:
        raise NotFound(param="parent")
    if rows and rows[-1].entry.role is not Role.ASSISTANT:
        raise InvalidInput("The parent must be a reply.", param="parent")
    return Draft(conversation, plan, found, rows)


def load_regenerate(principal: Principal, message_id: UUID, model: str | None) -> Draft:
    """For another reply beside this one. Raises as `load_send`."""
    return _beside(principal, _get_reply(principal, message_id), model)


def load_instead(principal: Principal, message_id: UUID, request_id: UUID, model: str) -> Draft:
    """For another reply instead of this one, which waits for that request. Raises as `load_send`, and NotWaiting."""
    message = selectors.get_message(principal, message_id)
    if message.request_id != request_id or message.status != MessageStatus.PENDING:
        raise NotWaiting
    return _beside(principal, message, model)


def _beside(principal: Principal, message: Message, model: str | None) -> Draft:
    conversation = message.conversation
    plan, found = _model(principal, model or conversation.model_id)
    return Draft(conversation, plan, found, load_branch(conversation.id, message.parent_id))


def load_continue(principal: Principal, message_id: UUID) -> tuple[Draft, Message]:
    """For more of this reply. Raises as `load_send`, and NotContinuable."""
    message = _get_reply(principal, message_id)
    if not continuable(message) or message.children.exists():
        raise NotContinuable
    conversation = message.conversation
    plan, found = _model(principal, message.model_id or conversation.model_id)
    return Draft(conversation, plan, found, load_branch(conversation.id, message.parent_id)), message


def _model(principal: Principal, name: str) -> tuple[PlanLimits, Model]:
    plan = plan_of(principal.organization_id)
    return plan, inference_selectors.require_model(name, plan.tier, plan.models)


def _get_reply(principal: Principal, message_id: UUID) -> Message:
    message = selectors.get_message(principal, message_id)
    if message.role != Message.Role.ASSISTANT:
        raise InvalidInput("This message is not a reply.")
    if message.status in RUNNING:
        raise ReplyRunning
    return message


# Writing: in the transaction that opens the request


def new_reply(draft: Draft, user_message_id: UUID, reply_id: UUID, request_id: UUID, left_out: int) -> Message:
    """The empty reply that its request will fill."""
    return Message(
        id=reply_id,
        conversation_id=draft.conversation.id,
        parent_id=user_message_id,
        role=Message.Role.ASSISTANT,
        status=MessageStatus.PENDING,
        model=draft.model,
        left_out=left_out,
        request_id=request_id,
    )


def write_messages(conversation: Conversation, messages: Sequence[Message]) -> None:
    """Adds the messages, the last of which becomes the active leaf. The first words of a conversation name it."""
    title = {} if conversation.title else {"title": title_from(messages[0].content)}
    _touch(conversation, active_leaf_id=messages[-1].id, **title)
    now = timezone.now()
    for message in messages:
        message.created_at = now
    Message.objects.bulk_create(messages)


def reopen_reply(message: Message, request_id: UUID, left_out: int, model: Model | None = None) -> None:
    """Lets `message`, as it was read, wait for more. Raises ReplyRunning when it has changed meanwhile.

    `model`: another one's, where it has no text yet.
    """
    _touch(message.conversation, active_leaf_id=message.id)
    rows = Message.objects.filter(id=message.id, request_id=message.request_id)
    reopened = move(
        rows,
        message.status,
        MessageStatus.PENDING,
        request_id=request_id,
        left_out=left_out,
        finish_reason="",
        error_code="",
        error_message="",
        **({} if model is None else {"model": model}),
    )
    if not reopened:
        raise ReplyRunning


def write_instead(draft: Draft, message_id: UUID, reply: Message) -> None:
    """Lets `reply` take the place of a message whose request was withdrawn: the same message, where that has no text.

    Text that it had before it waited stays as a version, and the reply becomes its sibling. Raises NotFound,
    ReplyRunning.
    """
    given_up = Message.objects.select_related("conversation").filter(id=message_id).first()
    if given_up is None:
        raise NotFound  # deleted meanwhile
    if given_up.status in RUNNING:
        raise ReplyRunning
    if given_up.content or given_up.token_ids:
        write_messages(draft.conversation, [reply])
        return
    assert reply.request_id is not None  # a reply that is to be made has one
    reply.id = given_up.id
    reopen_reply(given_up, reply.request_id, reply.left_out, draft.model)


def _touch(conversation: Conversation, **changes: Any) -> None:
    """Locks the row: what two tabs send at once is written one after the other."""
    rows = Conversation.objects.filter(id=conversation.id)
    if not rows.update(updated_at=timezone.now(), **changes):
        raise NotFound  # deleted meanwhile


# Pure


def continuable(message: Message) -> bool:
    """Whether a reply's own state lets it go on."""
    if message.status == MessageStatus.COMPLETE:
        return message.finish_reason in ("length", "quota")
    return message.status in (MessageStatus.STOPPED, MessageStatus.FAILED)


def title_from(content: str) -> str:
    """The first words of a message: one line that other people may read, cut at a word where there is one.

    Empty where the message shows nothing.
    """
    line = clean_line(" ".join(content.split()))
    if len(line) <= TITLE_CHARACTERS:
        return line
    head = line[: TITLE_CHARACTERS + 1].rpartition(" ")[0] or line[:TITLE_CHARACTERS]
    return f"{head.rstrip('.,;:!?')}…"
