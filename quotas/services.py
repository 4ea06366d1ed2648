"""Reserving before, settling after, and writing down what was used.

Fail-closed: while Redis does not answer nothing is admitted (503), because then the limits, hard ones included, cannot
be kept. What runs goes on: renewals and settlements are repeated by their callers until they are confirmed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from redis.exceptions import RedisError

from chatsite.accounts.protocol import Principal
from chatsite.errors import Unavailable
from chatsite.redis import Arg, Call, Script, async_client
from quotas.errors import (
    QuotaExceeded,
    RequestExceedsLimit,
    RequestsPerMinuteExceeded,
    TokensPerMinuteExceeded,
    TooManyReplies,
)
from quotas.models import LedgerEntry, Plan, Subscription
from quotas.protocol import Bucket, PlanLimits, Prices, Remaining, Standing, TokenUsage, buckets_of, cost
from quotas.selectors import BUCKETS, SCRIPTS, known_plans, quota_prefix, standings

__all__ = [
    "PlanLimits",
    "Prices",
    "Remaining",
    "make_default",
    "record_usage",
    "renew_calls",
    "reserve",
    "restore",
    "settle",
    "settle_call",
    "subscribe",
]

_RECORD_USAGE = (Path(__file__).parent / "sql" / "record_usage.sql").read_text()  # a third of what the ORM takes
RESERVE = Script.load(SCRIPTS / "reserve.lua", BUCKETS)
RENEW = Script.load(SCRIPTS / "renew.lua", BUCKETS)
SETTLE = Script.load(SCRIPTS / "settle.lua", BUCKETS)
REMEMBER_SECONDS = 300  # how long a settled request is known as such: longer than any repeat of its last steps takes
REPLY_ENDS_SECONDS = 1.0  # when a running reply will end is not known; clients ask again after this
RESERVED, NO_TOKENS, NO_REQUESTS = 0, 1, 2  # verdicts of reserve.lua


async def reserve(principal: Principal, plan: PlanLimits, replies: Mapping[UUID, int], ttl_seconds: float) -> Remaining:
    """Takes, in every bucket that applies, one request, and for each reply (a request id) its tokens and a place.

    They are held until settled or not renewed in time. Idempotent by reply. Raises TokensPerMinuteExceeded,
    RequestsPerMinuteExceeded, TooManyReplies, RequestExceedsLimit, Unavailable; then nothing was taken anywhere.
    """
    buckets = buckets_of(principal, plan)
    _check_size(buckets, replies)
    args: list[Arg] = [_ms(ttl_seconds), len(buckets)]
    for each in buckets:
        args += (each.name, each.tokens_per_minute or 0, each.requests_per_minute or 0, each.concurrent or 0)
    for reply, tokens in replies.items():
        args += (str(reply), tokens)
    try:
        answer = await RESERVE(async_client(), quota_prefix(principal.organization_id), *args)
    except RedisError as error:
        raise Unavailable("The limits cannot be checked now. Try again shortly.", retry_after=2) from error
    verdict, refusing, wait, _, *counts = answer
    remaining = Remaining(standings(buckets, counts))
    if verdict != RESERVED:
        raise _refusal(verdict, remaining.standings[refusing - 1], remaining, wait / 1000)
    return remaining


def _check_size(buckets: Sequence[Bucket], replies: Mapping[UUID, int]) -> None:
    """Raises RequestExceedsLimit for what no waiting would make room for."""
    tokens = sum(replies.values())
    for each in buckets:
        if each.tokens_per_minute is not None and tokens > each.tokens_per_minute:
            much = f"This may take {tokens:,} tokens, and {_inside(each)} allows {each.tokens_per_minute:,} a minute."
            raise RequestExceedsLimit(much, Remaining((Standing(each),)))
        if each.concurrent is not None and len(replies) > each.concurrent:
            many = f"This asks for {len(replies)} replies, and {_inside(each)} allows {each.concurrent} at once."
            raise RequestExceedsLimit(many, Remaining((Standing(each),)))


def _refusal(verdict: int, standing: Standing, remaining: Remaining, wait: float) -> QuotaExceeded:
    bucket = standing.bucket
    if verdict == NO_TOKENS:
        limit = bucket.tokens_per_minute or 0
        left = max(0, limit - standing.tokens)
        message = f"{bucket.title} allows {limit:,} tokens a minute; {left:,} are left now."
        return TokensPerMinuteExceeded(message, remaining, retry_after=wait)
    if verdict == NO_REQUESTS:
        message = f"{bucket.title} allows {bucket.requests_per_minute:,} requests a minute, and they are used up."
        return RequestsPerMinuteExceeded(message, remaining, retry_after=wait)
    message = f"{bucket.title} allows {bucket.concurrent} replies at once, and {standing.running} are running."
    return TooManyReplies(message, remaining, retry_after=REPLY_ENDS_SECONDS)


def _inside(bucket: Bucket) -> str:
    """Its title within a sentence."""
    return bucket.title[:1].lower() + bucket.title[1:]


def renew_calls(items: Iterable[tuple[UUID, UUID]], ttl_seconds: float) -> list[Call]:
    """Keeps the reservations of (organization, request) alive for another `ttl_seconds`: one call per organization.

    A reservation that Redis has lost gets its place back, without tokens; all that it used is taken when it is settled.
    It then counts against the plan alone: which key it came by is lost, too.
    """
    by_organization: dict[UUID, list[str]] = defaultdict(list)
    for organization_id, request_id in items:
        by_organization[organization_id].append(str(request_id))
    ttl = _ms(ttl_seconds)
    return [
        Call(RENEW, quota_prefix(organization), (ttl, 0, *requests))
        for organization, requests in by_organization.items()
    ]


async def restore(organization_id: UUID, request_id: UUID, tokens: int, ttl_seconds: float) -> None:
    """Makes a reservation again that Redis has lost, beyond the limits if need be: it was admitted before."""
    await RENEW(async_client(), quota_prefix(organization_id), _ms(ttl_seconds), tokens, str(request_id))


def settle_call(organization_id: UUID, request_id: UUID, actual_tokens: int) -> Call:
    """Replaces the reservation by what was used and frees the place. Idempotent: only the first call counts."""
    return Call(SETTLE, quota_prefix(organization_id), (str(request_id), actual_tokens, REMEMBER_SECONDS * 1000))


async def settle(organization_id: UUID, request_id: UUID, actual_tokens: int) -> None:
    """Sends `settle_call`. Raises RedisError: then nothing is known, and it may be repeated."""
    call = settle_call(organization_id, request_id, actual_tokens)
    await call.script(async_client(), call.prefix, *call.args)


def record_usage(
    *,
    request_id: UUID,
    organization_id: UUID,
    user_id: UUID,
    api_key_id: UUID | None,
    model: str,
    prices: Prices,
    usage: TokenUsage,
    outcome: str,
    source: str,
) -> None:
    """Writes the request's one ledger row, in the caller's transaction. A second one for the request is ignored."""
    row: dict[str, Any] = {
        "request_id": request_id,
        "kind": LedgerEntry.Kind.USAGE.value,
        "seq": 0,
        "organization_id": organization_id,
        "user_id": user_id,
        "api_key_id": api_key_id,
        "model": model,
        "input": usage.input,
        "cached": usage.cached,
        "output": usage.output,
        "cost": cost(usage, prices),
        "outcome": outcome,
        "source": source,
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_USAGE, row)


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


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
