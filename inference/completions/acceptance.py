"""How a call is accepted: encode, reserve, write a request for each choice, queue. Refused, it leaves nothing."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import AppError
from chatsite.ids import made_at, new_id, public_id
from inference import keeping, reservations, selectors, services, tokenization
from inference.completions import crowd
from inference.completions.calls import Call, Prompt
from inference.completions.ending import cancel, go_on
from inference.completions.errors import InvalidValue
from inference.errors import ContextTooLong
from inference.models import Model, Request
from inference.prompts import PromptTooLong
from inference.protocol import Decided, Prepared, Turn, answer_id
from inference.services import OpenedRequest
from quotas import services as quota_services
from quotas.protocol import PlanLimits, Remaining
from quotas.selectors import aplan_of
from quotas.services import NOTHING

# Called in the transaction that writes the requests, with their ids, the tokens of all prompts, and the model's name.
Remember = Callable[[Sequence[UUID], int, str], None]


@dataclass(frozen=True)
class Naming:
    """What an answer is called, and when it was begun (Unix seconds)."""

    id: str
    created: int

    @classmethod
    def after(cls, chat: bool, requests: Sequence[UUID]) -> "Naming":
        """By the id of the first of its requests, so that the record of the call is found."""
        return cls(answer_id(chat, requests[0]), int(made_at(requests[0]).timestamp()))


@dataclass(frozen=True)
class Accepted:
    """A call that is promised. `requests`: one for each choice, in order; `prompt_tokens`: of all prompts together.

    `model`: which one answers, the one that was asked for or that which stands in for it.
    """

    requests: tuple[UUID, ...]
    prompt_tokens: int
    naming: Naming
    model: str
    remaining: Remaining | None = None


async def accept(
    principal: Principal,
    call: Call,
    remember: Remember | None = None,
    *,
    caller_id: UUID | None = None,
) -> Accepted:
    """Raises UnknownModel, ModelNotAllowed, ContextTooLong, PromptError kinds, RateLimited kinds, Unavailable kinds.

    A caller that goes away meanwhile does not cut it short: what was reserved is either spent or given back, and what
    was accepted by then is cancelled where `caller_id` names who waits for it (see `services.open_request`).
    """
    accepting = go_on(_accept(principal, call, remember, caller_id))
    try:
        return await asyncio.shield(accepting)
    except asyncio.CancelledError:
        if caller_id is not None:
            go_on(_cancel_once_accepted(accepting))
        raise


async def take_over(requests: Sequence[UUID], caller_id: UUID | None) -> None:
    """From now on it is that process which waits for them."""
    await run_db(
        lambda: Request.objects.filter(id__in=requests, status__in=Request.TRANSITIONS.active).update(
            caller_id=caller_id
        )
    )


async def _cancel_once_accepted(accepting: asyncio.Task[Accepted]) -> None:
    await asyncio.wait([accepting])
    if not accepting.cancelled() and accepting.exception() is None:
        await cancel(accepting.result().requests)


async def _accept(principal: Principal, call: Call, remember: Remember | None, caller_id: UUID | None) -> Accepted:
    plan = await aplan_of(principal.organization_id)
    model = await selectors.arequire_model(call.model, plan.tier, plan.models)
    if call.flex:  # before anything is encoded: a flood of those that are refused must cost little
        crowd.check_early(principal.organization_id, model.name, call.n * len(call.prompts))
    choices = await _choices(model, principal, plan, call)
    may_fall_back = call.allow_fallback and call.portable and plan.allows(model.fallback)
    decided = await _decide(model, plan, principal, call, choices, may_fall_back)
    if decided.model != model.name:
        try:
            choices = await _choices(await selectors.aget_model(decided.model), principal, plan, call)
        except AppError:  # the smaller model cannot take it: too long for it, say
            decided = await _decide(model, plan, principal, call, choices, False)
    remaining = await _reserve(principal, plan, call, choices)
    try:
        keeps = await keeping.keeps(principal.organization_id)
        writing = _Writing(principal, plan.tier, plan.weight, call.flex, caller_id, keeps, decided.record)
        opened = await run_db(_write, writing, choices, remember)
    except BaseException:
        if not call.flex:  # which holds nothing yet
            await _give_back(principal, choices)
        raise
    await services.submit_all(opened)
    requests = tuple(choice.request_id for choice in choices)
    naming = Naming.after(call.chat, requests)
    return Accepted(requests, _prompt_tokens(choices), naming, decided.model, remaining)


async def _decide(
    model: Model, plan: PlanLimits, principal: Principal, call: Call, choices: Sequence["_Choice"], may_fall_back: bool
) -> Decided:
    return await services.decide(
        model,
        plan,
        tenant=principal.organization_id,
        input=sum(len(choice.prepared.token_ids) for choice in choices),
        outputs=[choice.prepared.sampling.max_tokens for choice in choices],
        may_fall_back=may_fall_back,
        batch=call.flex,
    )


@dataclass(frozen=True)
class _Choice:
    request_id: UUID
    model: Model
    prompt: Prompt
    prepared: Prepared
    bills_prompt: bool  # once for each prompt, however many answers it gets
    bills_partial: bool  # a stream's caller has read what there was; an answer in one piece that fails is none

    @property
    def billed_input(self) -> int:
        return len(self.prepared.token_ids) if self.bills_prompt else 0


async def _choices(model: Model, principal: Principal, plan: PlanLimits, call: Call) -> list[_Choice]:
    encoded = []
    for prompt in call.prompts:
        encoded.append((prompt, await _encoded(model, plan, call, prompt)))
        if len(call.prompts) > 1:
            await asyncio.sleep(0)  # a hundred short ones take a while, in which others have their turn
    salt = services.cache_salt(principal.organization_id, shared=plan.shares_cache)
    return [_choice(model, plan, salt, call, prompt, ids, n) for prompt, ids in encoded for n in range(call.n)]


def _choice(
    model: Model, plan: PlanLimits, salt: str, call: Call, prompt: Prompt, ids: list[int], number: int
) -> _Choice:
    """The `number`-th answer to one prompt."""
    limit = _limit(model, plan, call, len(ids))
    if call.options.min_tokens > limit:
        raise InvalidValue(f"'min_tokens' is only allowed up to the {limit} tokens of the answer.", param="min_tokens")
    sampling = replace(call.options, max_tokens=limit, seed=_seed(call.options.seed, number))
    prepared = Prepared(model.name, ids, sampling, salt)
    return _Choice(new_id(), model, prompt, prepared, bills_prompt=number == 0, bills_partial=call.stream)


def _limit(model: Model, plan: PlanLimits, call: Call, prompt: int) -> int:
    """The most tokens of the answer to a prompt of so many. Raises ContextTooLong, InvalidValue."""
    context = plan.context(model.context_length)
    room, cap = context - prompt, plan.output_tokens or context
    limit = call.max_tokens if call.max_tokens is not None else min(settings.COMPLETION_TOKENS, room, cap)
    if room < 1 or limit > room:
        asked = f", and {limit} were asked for in the answer. Shorten one or the other."
        none_left = ", which leaves no room for an answer. Shorten it."
        raise _too_long(model, plan, call, f"{prompt} tokens{none_left if call.max_tokens is None else asked}")
    if limit > cap:  # the reference refuses, too, where a model has such a cap
        words = f"'max_tokens' is too large: {limit}. The {plan.name} plan allows at most {cap} tokens in an answer."
        raise InvalidValue(words, param="max_tokens")
    return limit


def _too_long(model: Model, plan: PlanLimits, call: Call, prompt: str) -> ContextTooLong:
    """`prompt`: what it has, as the end of a sentence."""
    context = plan.context(model.context_length)
    whose = "This model's" if context == model.context_length else f"The {plan.name} plan's"
    words = f"{whose} maximum context length is {context} tokens. The prompt has {prompt}"
    return ContextTooLong(words, param=call.param)


def _seed(seed: int | None, number: int) -> int | None:
    """Of each answer its own, so that they differ; within 64 bits, as the engine takes it."""
    return None if seed is None else (seed + number + 2**63) % 2**64 - 2**63


def _prompt_tokens(choices: Sequence[_Choice]) -> int:
    return sum(len(choice.prepared.token_ids) for choice in choices if choice.bills_prompt)


async def _encoded(model: Model, plan: PlanLimits, call: Call, prompt: Prompt) -> list[int]:
    context = plan.context(model.context_length)
    try:
        if isinstance(prompt, str):
            return await tokenization.encode_text(model, prompt, at_most=context)
        if prompt and isinstance(prompt[0], Turn):
            return await tokenization.encode(model, prompt, at_most=context)  # type: ignore[arg-type]
    except PromptTooLong as error:
        raise _too_long(model, plan, call, f"more than {error.least} tokens. Shorten it.") from error
    return await tokenization.check_ids(model, prompt)  # type: ignore[arg-type]


async def _reserve(principal: Principal, plan: PlanLimits, call: Call, choices: Sequence[_Choice]) -> Remaining:
    """For all or for none. What is to wait in the batch lane reserves when it starts (inference.runner.starting)."""
    lane = services.lane_of(plan.tier, batch=call.flex)
    wanted = {
        choice.request_id: await reservations.wanted(
            choice.request_id,
            principal.organization_id,
            choice.model,
            lane,
            input=choice.billed_input,
            output=choice.prepared.sampling.max_tokens,
        )
        for choice in choices
    }
    if call.flex:
        return await quota_services.announce(principal, plan, wanted)
    return await quota_services.reserve(principal, plan, wanted, reservations.life(lane))


async def _give_back(principal: Principal, choices: Sequence[_Choice]) -> None:
    for choice in choices:
        await quota_services.settle(principal.organization_id, choice.request_id, NOTHING)


@dataclass(frozen=True)
class _Writing:
    """What the requests of a call have in common. `keeps`: their texts are kept as well."""

    principal: Principal
    tier: str
    weight: float
    flex: bool
    caller_id: UUID | None
    keeps: bool
    decision: Mapping[str, Any]


def _write(writing: _Writing, choices: Sequence[_Choice], remember: Remember | None) -> list[OpenedRequest]:
    if writing.flex:
        crowd.check(writing.principal.organization_id, choices[0].prepared.model, len(choices))
    if len(choices) == 1 and remember is None and not writing.keeps:
        return [_open(writing, choices[0])]
    first, *others = choices
    with transaction.atomic():
        opened = [_open(_leading(writing, choices), first), *(_open(writing, other) for other in others)]
        if remember is not None:
            requests, model = [choice.request_id for choice in choices], choices[0].prepared.model
            remember(requests, _prompt_tokens(choices), model)
    return opened


def _leading(writing: _Writing, choices: Sequence[_Choice]) -> _Writing:
    """For the request that the answer is called after: where there are several, its record names all of them."""
    if len(choices) == 1:
        return writing
    answers = [public_id("req", choice.request_id) for choice in choices]
    return replace(writing, decision={**writing.decision, "answers": answers})


def _open(writing: _Writing, choice: _Choice) -> OpenedRequest:
    kind, owner_id = "completion", choice.request_id
    if writing.keeps:
        kind = "kept_completion"
        owner_id = keeping.keep(choice.request_id, writing.principal, choice.prepared.model, choice.prompt)
    return services.open_request(
        request_id=choice.request_id,
        principal=writing.principal,
        tier=writing.tier,
        prepared=choice.prepared,
        owner_kind=kind,
        owner_id=owner_id,
        bills_prompt=choice.bills_prompt,
        bills_partial=choice.bills_partial,
        caller_id=writing.caller_id,
        decision=writing.decision,
        weight=writing.weight,
        batch=writing.flex,
        waits_at_most=settings.FLEX_WAIT_SECONDS if writing.flex else math.inf,
    )
