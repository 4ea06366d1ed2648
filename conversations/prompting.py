"""The prompt of a reply: the branch above it, cut to what fits, as token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from chatsite.database import run_db
from chatsite.errors import InvalidInput
from conversations.context import DEFAULT_REPLY, TURN_OVERHEAD, Entry, first_kept, join_turns, reply_room
from conversations.models import Message
from conversations.selectors import RUNNING, read_sql
from inference import services as inference_services
from inference.errors import ContextTooLong
from inference.models import Model
from inference.protocol import Role, Turn
from quotas.protocol import PlanLimits

NEAR_TEXTS = 40  # messages whose text comes with the branch; more is read only when it fits the context
MAX_REFITS = 8  # an estimate that is too low by a turn's overhead each time would need so many


@dataclass(frozen=True, slots=True)
class Row:
    """A message of the branch, as far as a prompt needs it. `content` None: not read yet."""

    id: UUID
    entry: Entry
    content: str | None
    running: bool = False


@dataclass(frozen=True)
class Fitted:
    """A prompt that leaves room for `max_tokens`. `left_out`: messages of the branch that the model does not see."""

    token_ids: list[int]
    max_tokens: int
    left_out: int


def system_text(model: Model, own: str) -> str:
    """What stands ahead of every turn: the model's pinned prompt, then the conversation's `own`."""
    return "\n\n".join(text for text in (model.system_prompt, own) if text.strip())


def load_branch(conversation_id: UUID, leaf: UUID | None) -> list[Row]:
    """`leaf` and its ancestors, oldest first; empty when the conversation has no such message."""
    if leaf is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(read_sql("context"), {"conversation": conversation_id, "leaf": leaf, "texts": NEAR_TEXTS})
        return [
            Row(id_, Entry(Role(role), tokens, usable=not blank), content, status in RUNNING)
            for id_, role, status, tokens, blank, content in cursor.fetchall()
        ]


def load_texts(rows: Sequence[Row]) -> list[Row]:
    """The same rows, each with its text."""
    missing = [row.id for row in rows if row.content is None]
    if not missing:
        return list(rows)
    texts = dict(Message.objects.filter(id__in=missing).values_list("id", "content"))
    return [Row(row.id, row.entry, texts.get(row.id, "")) if row.content is None else row for row in rows]


def turns_of(system: str, rows: Sequence[Row]) -> list[Turn]:
    """Rows must have their texts."""
    turns = [(row.entry.role, row.content or "") for row in rows if row.entry.usable]
    return [Turn(role, text) for role, text in join_turns([(Role.SYSTEM, system)] * bool(system) + turns)]


def turns_of_reply(message: Message) -> list[Turn]:
    """The turns that a reply's prompt was made of, from what its row says was left out."""
    if message.model is None:
        return []
    rows = load_branch(message.conversation_id, message.parent_id)[message.left_out :]
    return turns_of(system_text(message.model, message.conversation.system_prompt), load_texts(rows))


async def fit(
    model: Model,
    system: str,
    rows: Sequence[Row],
    *,
    plan: PlanLimits | None = None,
    prefix_ids: Sequence[int] = (),
    max_tokens: int | None = None,
) -> Fitted:
    """Cuts a branch to what fits, and encodes it.

    `rows`: oldest first, ending in the user's turn to be answered. `prefix_ids`: of the reply that is to be continued.
    `plan`: what it caps is cut; longer answers than it has are not refused, but become shorter. Raises InvalidInput,
    ContextTooLong and what `encode` raises.
    """
    _check_max_tokens(model, max_tokens)
    context = plan.context(model.context_length) if plan else model.context_length
    cap = (plan.output_tokens if plan else None) or context
    max_tokens = None if max_tokens is None else min(max_tokens, cap)
    if rows[-1].entry.tokens >= context:
        raise ContextTooLong(_too_long(model, plan), param="content")
    fixed = len(prefix_ids) + (sum(await inference_services.count(model, [system])) if system else 0)
    wanted = reply_room(context, max_tokens)
    limit = context - wanted
    for _ in range(MAX_REFITS):
        start = first_kept([row.entry for row in rows], fixed, limit)
        token_ids = [*await inference_services.encode(model, turns_of(system, await _texts(rows[start:]))), *prefix_ids]
        room = context - len(token_ids)
        if room >= wanted or start == len(rows) - 1:
            break
        limit -= wanted - room + TURN_OVERHEAD  # the estimate was too low by so much
    if room < (max_tokens or 1):
        raise ContextTooLong(_too_long(model, plan, room, max_tokens), param="max_tokens" if room > 0 else "content")
    return Fitted(token_ids, max_tokens or min(DEFAULT_REPLY, room, cap), start)


async def _texts(rows: Sequence[Row]) -> Sequence[Row]:
    if all(row.content is not None for row in rows):
        return rows
    return await run_db(load_texts, rows)


def _check_max_tokens(model: Model, max_tokens: int | None) -> None:
    if max_tokens is not None and not 1 <= max_tokens < model.context_length:
        raise InvalidInput(f"max_tokens must be 1 to {model.context_length - 1}.", param="max_tokens")


def _too_long(model: Model, plan: PlanLimits | None, room: int = 0, max_tokens: int | None = None) -> str:
    if room > 0:
        return f"The text leaves room for {room} tokens, and max_tokens asks for {max_tokens}."
    if plan and plan.context(model.context_length) < model.context_length:
        return f"The text is longer than the {plan.context_tokens} tokens that the {plan.name} plan allows."
    return f"The text is longer than the {model.context_length} tokens that {model.title or model.name} can read."
