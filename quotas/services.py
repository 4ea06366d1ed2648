"""Reserving before, settling after, and writing down what was used.

Fail-closed: while Redis does not answer nothing is admitted (503), because then the limits, hard ones included, cannot
be kept. What runs goes on: renewals and settlements are repeated by their callers until they are confirmed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from redis.exceptions import RedisError

from chatsite.accounts.protocol import COMMAND, Actor, Principal
from chatsite.errors import Unavailable
from chatsite.redis import Arg, Call, async_client
from quotas import budgets as of
from quotas import counters, refusals
from quotas.billing import money_history
from quotas.counters import Open, Requests, forget_where_redis_restarted
from quotas.errors import NoPlan, Stopped
from quotas.ledger import Correction, Times, annul, correct, make_partitions, record_usage, refund
from quotas.models import Plan, Stop, Subscription
from quotas.money import most_cost, units
from quotas.prices import PriceVersion, sync_price
from quotas.protocol import (
    Bucket,
    BudgetLimit,
    PlanLimits,
    Prices,
    Remaining,
    Used,
    Want,
    buckets_of,
    key_of,
)
from quotas.scripts import REMEMBER_MS, RENEW, RESERVE, SETTLE, quota_prefix
from quotas.selectors import known_plans, standings

__all__ = [
    "NOTHING",
    "SETTLE",
    "Correction",
    "Open",
    "PlanLimits",
    "PriceVersion",
    "Prices",
    "Remaining",
    "Requests",
    "Times",
    "Used",
    "Want",
    "announce",
    "annul",
    "correct",
    "forget_where_redis_restarted",
    "make_default",
    "make_partitions",
    "record_usage",
    "refund",
    "renew_calls",
    "renewed",
    "reserve",
    "restore",
    "resume",
    "settle",
    "settle_call",
    "settled",
    "start",
    "stop",
    "subscribe",
    "sync_price",
    "units",
    "want",
]

RESERVED, UNKNOWN_BUDGET = 0, 5  # verdicts of reserve.lua; those between are refusals
TRIES = 3  # of a reservation whose budgets have to be read from the ledger first
TOP_UP, NEAR = 256, 128  # tokens: how much a reservation grows by, and with how many left
NOT_TOLD = -1
STOPPED_SECONDS = 60.0
NOTHING = Used(0)
BEING_READ = -1  # settle.lua: nothing is settled while the ledger is read


def want(input: int, output: int, expected: int, price: PriceVersion, lane: str) -> Want:
    """What a reply reserves: so many tokens of input to pay, and at most `output`, of which `expected` are likely."""
    likely = min(output, expected)
    cost = most_cost(input, output, price.prices, lane)
    return Want(input + likely, input + output, cost, expected=max(0, likely - 1))


def _fitted(buckets: Sequence[Bucket], replies: Mapping[UUID, Want]) -> Mapping[UUID, Want]:
    """What is only expected is reserved as far as a minute's limit allows; what comes of it is topped up."""
    limits = [each.tokens_per_minute for each in buckets if each.tokens_per_minute is not None]
    too_many = sum(each.tokens for each in replies.values()) - min(limits, default=0)
    if not limits or too_many <= 0:
        return replies
    fitted = {}
    for reply, wanted in replies.items():
        less = min(too_many, wanted.expected)
        too_many -= less
        fitted[reply] = replace(wanted, tokens=wanted.tokens - less)
    return fitted


async def reserve(
    principal: Principal,
    plan: PlanLimits,
    replies: Mapping[UUID, Want],
    ttl_seconds: float,
    *,
    given_up: UUID | None = None,
) -> Remaining:
    """Takes, in every bucket that applies, one request, and for each reply (a request id) its tokens and a place.

    In every hard budget it takes the most that each may use. All is held until settled, or not renewed in time.
    Idempotent by reply. `given_up`: a reply that these are made instead of. What it holds is as room for them, so that
    a plan's only place does for the exchange; it stays held until the caller settles it.

    Raises TokensPerMinuteExceeded, RequestsPerMinuteExceeded, TooManyReplies, RequestExceedsLimit, BudgetExhausted,
    NoPlan, Stopped, Unavailable; then nothing was taken anywhere.
    """
    buckets, budgets = _limits_of(principal, plan)
    replies = _fitted(buckets, replies)
    refusals.check_size(buckets, budgets, replies)
    return await _take("all", principal, buckets, budgets, replies, ttl_seconds, given_up)


async def announce(principal: Principal, plan: PlanLimits, replies: Mapping[UUID, Want]) -> Remaining:
    """Takes, in every bucket that applies, one request, for replies that are to `start` later: they hold nothing yet.

    Refused is what has no room whichever replies end: beyond the requests of this minute, or what a budget has spent.
    Raises RequestsPerMinuteExceeded, RequestExceedsLimit, BudgetExhausted, NoPlan, Stopped, Unavailable; then nothing
    was taken.
    """
    buckets, budgets = _limits_of(principal, plan)
    for reply, wanted in replies.items():  # each starts by itself: they need not fit into a minute together
        refusals.check_size(buckets, [], _fitted(buckets, {reply: wanted}))
    refusals.check_size([], budgets, replies)
    return await _take("request", principal, buckets, budgets, replies, 0)


async def start(principal: Principal, plan: PlanLimits, reply: UUID, wanted: Want, ttl_seconds: float) -> Remaining:
    """As `reserve`, for a reply that was announced: its request was taken then, and is not taken again."""
    buckets, budgets = _limits_of(principal, plan)
    replies = _fitted(buckets, {reply: wanted})
    refusals.check_size(buckets, budgets, replies)
    return await _take("replies", principal, buckets, budgets, replies, ttl_seconds)


def _limits_of(principal: Principal, plan: PlanLimits) -> tuple[tuple[Bucket, ...], list[BudgetLimit]]:
    """All buckets and hard budgets that apply. Raises NoPlan, Stopped."""
    if plan.missing:
        raise NoPlan
    if plan.stopped:
        raise Stopped(plan.stopped, retry_after=STOPPED_SECONDS)
    return buckets_of(principal, plan), [each for each in plan.budgets_of(principal) if each.hard]


async def _take(
    what: str,
    principal: Principal,
    buckets: Sequence[Bucket],
    budgets: Sequence[BudgetLimit],
    replies: Mapping[UUID, Want],
    ttl_seconds: float,
    given_up: UUID | None = None,
) -> Remaining:
    """`what`: as reserve.lua has it."""
    args: list[Arg] = [what, *_reserve_args(principal, buckets, budgets, replies, ttl_seconds)]
    if given_up is not None:
        args.append(str(given_up))
    try:
        for _ in range(TRIES):
            answer = await RESERVE(async_client(), quota_prefix(principal.organization_id), *args)
            if answer[0] != UNKNOWN_BUDGET:
                break
            await counters.read(principal.organization_id, of.counters(budgets))
    except RedisError as error:
        raise Unavailable("The limits cannot be checked now. Try again shortly.", retry_after=2) from error
    verdict, refusing, wait, _, taken, held, *counts = answer
    remaining = Remaining(standings(buckets, counts))
    if verdict == RESERVED:
        return remaining
    if verdict == UNKNOWN_BUDGET:
        raise Unavailable("The budgets are being counted. Try again shortly.", retry_after=2)
    if verdict == refusals.NO_BUDGET:
        budget = budgets[refusing - 1]
        wanted = refusals.wanted_of(budget, replies)
        raise refusals.of_budget(budget, taken, held, wanted, remaining, wait / 1000)
    raise refusals.of_bucket(verdict, remaining.standings[refusing - 1], remaining, wait / 1000)


def _reserve_args(
    principal: Principal,
    buckets: Sequence[Bucket],
    budgets: Sequence[BudgetLimit],
    replies: Mapping[UUID, Want],
    ttl_seconds: float,
) -> list[Arg]:
    key = key_of(principal)
    args: list[Arg] = [
        _ms(ttl_seconds), str(principal.user_id), key.partition(":")[2] if key else "-", len(buckets),
    ]  # fmt: skip
    for each in buckets:
        args += (each.name, each.tokens_per_minute or 0, each.requests_per_minute or 0, each.concurrent or 0)
    args.append(len(budgets))
    for budget in budgets:
        args += (budget.subject, budget.unit.value, budget.days, budget.limit)
    for reply, wanted in replies.items():
        args += (str(reply), wanted.tokens, wanted.most, wanted.cost)
    return args


def renew_calls(
    items: Iterable[tuple[UUID, UUID]], ttl_seconds: float, used: Mapping[UUID, int] | None = None
) -> list[Call]:
    """Keeps the reservations of (organization, request) alive for another `ttl_seconds`: one call per organization.

    A reservation that Redis has lost gets its place back, without tokens; all that it used is taken when it is settled.
    It then counts against the plan alone: which key it came by is lost, too. `used`: tokens of requests so far, whose
    reservations are topped up where they near their end. `renewed` reads the answers.
    """
    by_organization: dict[UUID, list[Arg]] = defaultdict(list)
    for organization_id, request_id in items:
        by_organization[organization_id] += (str(request_id), (used or {}).get(request_id, NOT_TOLD))
    ttl = _ms(ttl_seconds)
    return [
        Call(RENEW, quota_prefix(organization), (ttl, 0, TOP_UP, NEAR, *requests))
        for organization, requests in by_organization.items()
    ]


@dataclass(frozen=True)
class Renewed:
    """`refused`: requests that have used up what was reserved, and for which there is no more.

    `reserved`: tokens that each has now, without those that have all they can use.
    """

    refused: Sequence[UUID]
    reserved: Mapping[UUID, int]


def renewed(calls: Iterable[Call], answers: Iterable[Any]) -> Renewed:
    """What `renew_calls` brought. Raises what is an exception among the answers."""
    refused: list[UUID] = []
    reserved: dict[UUID, int] = {}
    for call, answer in zip(calls, answers, strict=True):
        if isinstance(answer, Exception):
            raise answer
        _, _, ended, amounts = answer
        refused += [UUID(id.decode()) for id in ended]
        reserved |= {UUID(str(id)): int(n) for id, n in zip(call.args[4::2], amounts, strict=True) if n}
    return Renewed(refused, reserved)


async def restore(organization_id: UUID, request_id: UUID, tokens: int, ttl_seconds: float) -> None:
    """Makes a reservation again that Redis has lost, beyond the limits if need be: it was admitted before."""
    given = (_ms(ttl_seconds), tokens, TOP_UP, NEAR, str(request_id), NOT_TOLD)
    await RENEW(async_client(), quota_prefix(organization_id), *given)


def settle_call(organization_id: UUID, request_id: UUID, used: Used) -> Call:
    """Replaces the reservation by what was used and frees the place. Idempotent: only the first call counts.

    `settled` reads the answer.
    """
    given = (str(request_id), used.tokens, used.billed, used.cost, REMEMBER_MS)
    return Call(SETTLE, quota_prefix(organization_id), given)


def settled(answer: Sequence[int]) -> bool:
    """Whether a `settle_call` has done its work; False while counters are read from the ledger: to be repeated."""
    return answer[0] != BEING_READ


async def settle(organization_id: UUID, request_id: UUID, used: Used) -> bool:
    """Sends `settle_call`; False when it is to be repeated. Raises RedisError: then nothing is known."""
    call = settle_call(organization_id, request_id, used)
    return settled(await call.script(async_client(), call.prefix, *call.args))


# Plans and stops


def subscribe(organization_id: UUID, plan_name: str) -> None:
    """Puts the organization on a plan, from now on. Raises Plan.DoesNotExist."""
    plan = Plan.objects.get(name=plan_name)
    Subscription.objects.update_or_create(organization_id=organization_id, defaults={"plan": plan})
    known_plans.drop(organization_id)


def make_default(plan: Plan) -> None:
    """Organizations without a subscription are on this plan from now on."""
    with transaction.atomic():
        list(Plan.objects.select_for_update().order_by("id").values_list("id"))  # two at once would both be the default
        Plan.objects.filter(is_default=True).exclude(id=plan.id).update(is_default=False)
        Plan.objects.filter(id=plan.id).update(is_default=True)
    known_plans.clear()


def stop(organization_id: UUID | None = None, message: str = "", by: Actor = COMMAND) -> None:
    """Nothing new is accepted from the organization (None: from anybody), within five seconds. What runs goes on.

    `message`: what callers are told, in a sentence.
    """
    with transaction.atomic():
        known = _stops(organization_id).filter(message=message).exists()
        _stops(organization_id).delete()
        Stop.objects.create(organization_id=organization_id, message=message)
        if organization_id is not None and not known:
            money_history.stopped(organization_id, message, by)
    known_plans.clear()


def resume(organization_id: UUID | None = None, by: Actor = COMMAND) -> bool:
    """Takes a `stop` back; False when there was none."""
    with transaction.atomic():
        count, _ = _stops(organization_id).delete()
        if count and organization_id is not None:
            money_history.resumed(organization_id, by)
    known_plans.clear()
    return bool(count)


def _stops(organization_id: UUID | None) -> QuerySet[Stop]:
    return Stop.objects.filter(Q(organization=None) if organization_id is None else Q(organization_id=organization_id))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
