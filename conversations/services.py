"""Writes to conversations: create, change, delete; send, continue, regenerate, stop."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from unicodedata import category
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from chatsite import notices
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import InvalidInput, NotFound, TooLarge
from chatsite.ids import new_id
from conversations import selectors
from conversations.acceptance import Accepted, Offer, accept
from conversations.context import Entry
from conversations.drafts import (
    Branch,
    Draft,
    Remember,
    load_continue,
    load_instead,
    load_regenerate,
    load_send,
    new_reply,
    reopen_reply,
    write_instead,
    write_messages,
)
from conversations.errors import NotWaiting
from conversations.follow import follow_from, open_reply
from conversations.models import Conversation, Feedback, Message, MessageStatus
from conversations.prompting import Row, fit
from conversations.selectors import RUNNING, read_sql
from inference import selectors as inference_selectors
from inference import services as inference_services
from inference.events import unpack_ids
from inference.models import Model
from inference.protocol import Cursor, Role
from quotas.selectors import plan_of

MAX_CONTENT_BYTES: Final = 256 * 1024
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zs"})  # control, format (such as U+200B), space


# Conversations


def create_conversation(
    principal: Principal, *, model: str | None = None, title: str = "", system_prompt: str = ""
) -> Conversation:
    """`model` None: the first that the caller's plan allows. Raises UnknownModel, ModelNotAllowed."""
    plan = plan_of(principal.organization_id)
    found = inference_selectors.require_model(model, plan.tier, plan.models)
    return Conversation.objects.create(
        organization_id=principal.organization_id,
        user_id=principal.user_id,
        model=found,
        title=title,
        system_prompt=system_prompt,
    )


def update_conversation(
    principal: Principal,
    conversation_id: UUID,
    *,
    title: str | None = None,
    model: str | None = None,
    system_prompt: str | None = None,
) -> Conversation:
    """Changes what is given. Raises NotFound, UnknownModel, ModelNotAllowed."""
    conversation = selectors.get_conversation(principal, conversation_id)
    changes: dict[str, Any] = {"title": title, "system_prompt": system_prompt}
    if model is not None:
        plan = plan_of(principal.organization_id)
        changes["model"] = inference_selectors.require_model(model, plan.tier, plan.models)
    changes = {name: value for name, value in changes.items() if value is not None}
    if set(changes) - {"title"}:
        changes["updated_at"] = timezone.now()  # a new name alone does not bring an old conversation to the top
    if changes and not selectors.conversations_of(principal).filter(id=conversation_id).update(**changes):
        raise NotFound  # deleted meanwhile
    for name, value in changes.items():
        setattr(conversation, name, value)
    transaction.on_commit(partial(notices.announce_sync, principal.user_id, conversation_id))
    return conversation


async def delete_conversation(principal: Principal, conversation_id: UUID) -> None:
    """Stops what runs in it, too. Raises NotFound."""
    requests = await run_db(_delete, principal, conversation_id)
    await notices.announce(principal.user_id, conversation_id)
    for request_id in requests:
        await inference_services.cancel(request_id)


def _delete(principal: Principal, conversation_id: UUID) -> list[UUID]:
    """Returns the requests that ran in it."""
    with transaction.atomic():
        # Locked: nothing can be written into it between the look at what hangs on it and its end.
        conversation = next(
            iter(selectors.conversations_of(principal).select_for_update().filter(id=conversation_id)), None
        )
        if conversation is None:
            raise NotFound
        running = conversation.messages.filter(status__in=RUNNING).values_list("request_id", flat=True)
        requests = [request_id for request_id in running if request_id]
        conversation.delete()
    return requests


async def choose_version(principal: Principal, message_id: UUID) -> None:
    """Makes the branch through this message the active one, down to its newest message. Raises NotFound."""
    conversation_id = await run_db(_choose_version, principal, message_id)
    await notices.announce(principal.user_id, conversation_id)


def _choose_version(principal: Principal, message_id: UUID) -> UUID:
    message = selectors.get_message(principal, message_id)
    with connection.cursor() as cursor:
        cursor.execute(read_sql("newest_leaf"), {"message": message.id})
        [leaf] = cursor.fetchone()
    Conversation.objects.filter(id=message.conversation_id).update(active_leaf_id=leaf)
    return message.conversation_id


async def mark_seen(principal: Principal, conversation_id: UUID, request_id: UUID) -> bool:
    """Notes that the last reply, made by this request, was looked at to its end; other pages hear it.

    Returns whether that was news: nothing changes when it was noted before, or is not the last reply any more.
    """
    if not await run_db(_mark_seen, principal, conversation_id, request_id):
        return False
    await notices.announce(principal.user_id, conversation_id)
    return True


def _mark_seen(principal: Principal, conversation_id: UUID, request_id: UUID) -> bool:
    rows = selectors.conversations_of(principal).filter(id=conversation_id, active_leaf__request_id=request_id)
    unseen = rows.exclude(active_leaf__status__in=RUNNING).exclude(seen_request=request_id)
    return bool(unseen.update(seen_request=request_id))


def give_feedback(principal: Principal, message_id: UUID, value: int) -> None:
    """`value`: one of Feedback. Raises NotFound, InvalidInput."""
    if value not in Feedback.values:
        raise InvalidInput("Feedback is 1, 0 or -1.", param="value")
    message = selectors.get_message(principal, message_id)
    if message.role != Message.Role.ASSISTANT or message.status in RUNNING:
        raise InvalidInput("Only a finished reply can have feedback.")
    Message.objects.filter(id=message_id).update(feedback=value)
    transaction.on_commit(partial(notices.announce_sync, principal.user_id, message.conversation_id))


# Replies


async def send(
    principal: Principal,
    conversation_id: UUID,
    content: str,
    *,
    model: str | None = None,
    parent: UUID | Branch | None = Branch.ACTIVE,
    max_tokens: int | None = None,
    allow_fallback: bool = False,
    remember: Remember | None = None,
) -> Accepted:
    """Writes the user's message and promises a reply.

    `parent`: the reply that it answers, None to begin anew; a second message under one parent is a sibling (edit).
    `allow_fallback`: while the model is busy the one that stands in for it may reply.
    Raises InvalidInput, TooLarge, NotFound, UnknownModel, ModelNotAllowed, ContextTooLong, ControlToken, ReplyRunning,
    RateLimited kinds, Unavailable kinds; then nothing was written.
    """
    check_content(content)
    draft = await run_db(load_send, principal, conversation_id, model, parent)

    async def offer(draft: Draft) -> Offer:
        [tokens] = await inference_services.count(draft.model, [content])
        turn = Row(new_id(), Entry(Role.USER, tokens), content)
        fitted = await fit(draft.model, draft.system, [*draft.rows, turn], plan=draft.plan, max_tokens=max_tokens)
        reply = new_reply(draft, turn.id, new_id(), new_id(), fitted.left_out)
        user = Message(
            id=turn.id,
            conversation_id=draft.conversation.id,
            parent_id=draft.rows[-1].id if draft.rows else None,
            role=Message.Role.USER,
            content=content,
            tokens=tokens,
        )
        write = partial(write_messages, draft.conversation, [user, reply])
        return Offer(principal, draft, fitted, reply, write, remember=remember)

    return await _accept(offer, draft, allow_fallback)


async def _accept(offer: Callable[[Draft], Awaitable[Offer]], draft: Draft, allow_fallback: bool) -> Accepted:
    def of_another(model: Model) -> Awaitable[Offer]:
        return offer(replace(draft, model=model))

    made = await offer(draft)
    return await accept(replace(made, otherwise=of_another) if allow_fallback else made)


async def edit(
    principal: Principal, message_id: UUID, content: str, *, model: str | None = None, remember: Remember | None = None
) -> Accepted:
    """Sends `content` in the place of one of the user's messages, which is kept as its sibling. Raises as `send`."""
    message = await run_db(selectors.get_message, principal, message_id)
    if message.role != Message.Role.USER:
        raise InvalidInput("Only your own messages can be edited.")
    return await send(
        principal, message.conversation_id, content, model=model, parent=message.parent_id, remember=remember
    )


async def regenerate(
    principal: Principal,
    message_id: UUID,
    *,
    model: str | None = None,
    max_tokens: int | None = None,
    allow_fallback: bool = False,
    remember: Remember | None = None,
) -> Accepted:
    """Promises another reply to the same message; the earlier one is kept as its sibling. Raises as `send`."""
    draft = await run_db(load_regenerate, principal, message_id, model)

    async def offer(draft: Draft) -> Offer:
        fitted = await fit(draft.model, draft.system, draft.rows, plan=draft.plan, max_tokens=max_tokens)
        reply = new_reply(draft, draft.rows[-1].id, new_id(), new_id(), fitted.left_out)
        write = partial(write_messages, draft.conversation, [reply])
        return Offer(principal, draft, fitted, reply, write, remember=remember)

    return await _accept(offer, draft, allow_fallback)


async def take_smaller(principal: Principal, message_id: UUID) -> Accepted:
    """Instead of a reply that waits, one of the model that it is offered meanwhile, in the same message.

    A place in the queue is given up only while it is one, and only for a reply that nothing refuses: one that an engine
    has by now goes on, and one whose successor is refused waits on at its place. Raises as `send`, and NotWaiting.
    """
    message = await run_db(selectors.get_message, principal, message_id)
    waiting = message.request_id if message.status == MessageStatus.PENDING else None
    smaller = await inference_selectors.smaller_model(waiting) if waiting else None
    if waiting is None or smaller is None:
        raise NotWaiting
    draft = await run_db(load_instead, principal, message_id, waiting, smaller.name)
    fitted = await fit(draft.model, draft.system, draft.rows, plan=draft.plan)
    reply = new_reply(draft, draft.rows[-1].id, new_id(), new_id(), fitted.left_out)
    write = partial(write_instead, draft, message_id, reply)
    return await accept(Offer(principal, draft, fitted, reply, write, given_up=waiting))


async def continue_reply(
    principal: Principal, message_id: UUID, *, max_tokens: int | None = None, remember: Remember | None = None
) -> Accepted:
    """Lets a reply go on where it ended, joined exactly. Raises as `send`, and NotContinuable."""
    draft, message = await run_db(load_continue, principal, message_id)
    ids = unpack_ids(message.token_ids)
    fitted = await fit(draft.model, draft.system, draft.rows, plan=draft.plan, prefix_ids=ids, max_tokens=max_tokens)
    base = Cursor(message.request_id or message.id, len(ids), len(message.content))
    request_id = new_id()
    write = partial(reopen_reply, message, request_id, fitted.left_out)
    reply = new_reply(draft, draft.rows[-1].id, message.id, request_id, fitted.left_out)
    return await accept(Offer(principal, draft, fitted, reply, write, base, remember))


@dataclass(frozen=True)
class Stopped:
    """`settled` False: the stop was noted, but the reply has not ended yet."""

    message: Message
    settled: bool


async def stop(principal: Principal, message_id: UUID) -> Stopped:
    """Ends a reply, keeping its text. Idempotent. Waits for the end, at most settings.STOP_WAIT_SECONDS.

    Raises NotFound, InvalidInput.
    """
    reply = await open_reply(principal, message_id)
    if not reply.terminal:
        await inference_services.cancel(reply.request_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.STOP_WAIT_SECONDS), aclosing(follow_from(reply)) as events:
                async for _ in events:
                    pass
    message = await run_db(selectors.read_message, principal, message_id)
    return Stopped(message, message.status not in RUNNING)


def check_content(content: str) -> None:
    """Raises InvalidInput, TooLarge."""
    if all(character.isspace() or category(character) in _INVISIBLE for character in content):
        raise InvalidInput("The message is empty.", param="content")
    if "\0" in content:
        raise InvalidInput("The message contains a NUL character.", param="content")
    try:
        size = len(content.encode())
    except UnicodeEncodeError:
        raise InvalidInput("The message contains half a surrogate pair.", param="content") from None
    if size > MAX_CONTENT_BYTES:
        raise TooLarge(f"A message may have {MAX_CONTENT_BYTES} bytes; this one has {size}.", param="content")
