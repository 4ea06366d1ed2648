"""How a reply is accepted: quota, then rows, then the queue. Refused anywhere, it leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from chatsite import notices
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import AppError
from conversations.drafts import Draft, Remember
from conversations.errors import NotWaiting, ReplyRunning
from conversations.models import Message
from conversations.prompting import Fitted
from conversations.selectors import Reply
from inference import reservations
from inference import selectors as inference_selectors
from inference import services as inference_services
from inference.models import Model
from inference.protocol import Cursor, Decided, Prepared, Sampling
from inference.services import OpenedRequest
from quotas import services as quota_services
from quotas.services import NOTHING, Remaining

ONE_RUNNING = "one_running_reply_per_conversation"


@dataclass(frozen=True)
class Offer:
    """A reply that can be made. `reply` is not saved; `write` saves it, in the transaction that opens its request."""

    principal: Principal
    draft: Draft
    fitted: Fitted
    reply: Message
    write: Callable[[], None]
    base: Cursor | None = None  # where a continued reply stands; its request is the earlier one
    remember: Remember | None = None
    otherwise: "Otherwise | None" = None
    given_up: UUID | None = None  # a request that waits, and is withdrawn once nothing refuses this one


# Where the caller takes the smaller model's reply, too, while its own is busy: the same offer, of another model.
Otherwise = Callable[[Model], Awaitable[Offer]]


@dataclass(frozen=True)
class Accepted:
    """A reply that is promised. `base`: the cursor behind which a continued one goes on.

    `instead_of`: the model that was asked for, where another one replies.
    """

    message_id: UUID
    user_message_id: UUID | None
    request_id: UUID
    remaining: Remaining
    base: Cursor | None = None
    instead_of: str | None = None

    @property
    def reply(self) -> Reply:
        """As it is stored, for `follow_from(accepted.reply, accepted.base)`: nothing needs to be read."""
        tokens, characters = (self.base.tokens, self.base.characters) if self.base else (0, 0)
        return Reply(self.message_id, self.user_message_id, self.request_id, "pending", "", tokens, characters)


_accepting: set[asyncio.Task[Accepted]] = set()  # strong references: the loop keeps only weak ones


async def accept(offer: Offer) -> Accepted:
    """Promises the reply. Raises RateLimited kinds, Unavailable, ReplyRunning, NotFound, NotWaiting; then nothing was
    written.

    A caller that goes away meanwhile does not cut it short: reserved quota is either spent on a reply or given back.
    """
    task = asyncio.create_task(_accept(offer))
    _accepting.add(task)
    task.add_done_callback(_accepting.discard)
    return await asyncio.shield(task)


async def _accept(offer: Offer) -> Accepted:
    asked = offer.draft.model.name
    offer, decision = await _decide(offer)
    organization_id, plan, request_id = offer.principal.organization_id, offer.draft.plan, _request_id(offer)
    wanted = await reservations.wanted(
        request_id,
        organization_id,
        offer.draft.model,
        inference_services.LANES[plan.tier],
        input=len(offer.fitted.token_ids),
        output=offer.fitted.max_tokens,
    )
    life = reservations.life(plan.tier)
    remaining = await quota_services.reserve(offer.principal, plan, {request_id: wanted}, life, given_up=offer.given_up)
    try:
        if offer.given_up is not None and not await inference_services.withdraw(offer.given_up):
            raise NotWaiting
        opened = await run_db(_write, offer, decision)
    except BaseException:
        await quota_services.settle(organization_id, request_id, NOTHING)
        raise
    await inference_services.submit(opened)
    await notices.announce(offer.principal.user_id, offer.draft.conversation.id)  # every page of this user
    instead_of = asked if offer.draft.model.name != asked else None
    return Accepted(offer.reply.id, offer.reply.parent_id, request_id, remaining, offer.base, instead_of)


async def _decide(offer: Offer) -> tuple[Offer, Mapping[str, Any]]:
    """The offer that is made, perhaps of the smaller model, and the record of why. Raises HighDemand."""
    has_other = offer.otherwise is not None and offer.draft.plan.allows(offer.draft.model.fallback)
    decided = await _ask(offer, may_fall_back=has_other)
    if offer.otherwise is None or decided.model == offer.draft.model.name:
        return offer, decided.record
    try:
        return await offer.otherwise(await inference_selectors.aget_model(decided.model)), decided.record
    except AppError:  # the smaller model cannot take it: too long for it, say
        return offer, (await _ask(offer, may_fall_back=False)).record


async def _ask(offer: Offer, *, may_fall_back: bool) -> Decided:
    return await inference_services.decide(
        offer.draft.model,
        offer.draft.plan,
        tenant=offer.principal.organization_id,
        input=len(offer.fitted.token_ids),
        outputs=[offer.fitted.max_tokens],
        may_fall_back=may_fall_back,
    )


def _write(offer: Offer, decision: Mapping[str, Any]) -> OpenedRequest:
    """All rows, in one transaction."""
    prompt, organization_id = offer.fitted, offer.principal.organization_id
    sampling = Sampling(max_tokens=prompt.max_tokens, temperature=settings.CHAT_TEMPERATURE)
    salt = inference_services.cache_salt(organization_id, shared=offer.draft.plan.shares_cache)
    prepared = Prepared(offer.draft.model.name, prompt.token_ids, sampling, salt)
    try:
        with transaction.atomic():
            offer.write()
            if offer.remember is not None:
                offer.remember(offer.reply.id, offer.base)
            return inference_services.open_request(
                request_id=_request_id(offer),
                principal=offer.principal,
                tier=offer.draft.plan.tier,
                prepared=prepared,
                owner_kind="message",
                owner_id=offer.reply.id,
                base_tokens=offer.base.tokens if offer.base else 0,
                base_chars=offer.base.characters if offer.base else 0,
                decision=decision,
                weight=offer.draft.plan.weight,
            )
    except IntegrityError as error:
        if _constraint(error) == ONE_RUNNING:
            raise ReplyRunning from error
        raise


def _request_id(offer: Offer) -> UUID:
    assert offer.reply.request_id is not None  # a reply that is to be made has one
    return offer.reply.request_id


def _constraint(error: IntegrityError) -> str | None:
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None)
