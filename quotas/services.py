"""Reserving before, settling after, and writing down what was used.

Fail-closed: while Redis does not answer nothing is admitted (503), because then the limits, hard ones included, cannot
be kept. What runs goes on: renewals and settlements are repeated by their callers until they are confirmed.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from redis.exceptions import RedisError

from chatsite.errors import Unavailable
from chatsite.redis import Call, Script, async_client
from quotas.errors import RequestExceedsLimit, TokensPerMinuteExceeded, TooManyReplies
from quotas.models import LedgerEntry, Plan, Subscription
from quotas.protocol import PlanLimits, Prices, Remaining, TokenUsage, cost
from quotas.selectors import known_plans, quota_prefix

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

SCRIPTS = Path(__file__).parent / "redis"
_RECORD_USAGE = (Path(__file__).parent / "sql" / "record_usage.sql").read_text()  # a third of what the ORM takes
RESERVE = Script.load(SCRIPTS / "reserve.lua")
RENEW = Script.load(SCRIPTS / "renew.lua")
SETTLE = Script.load(SCRIPTS / "settle.lua")
REMEMBER_SECONDS = 300  # how long a settled request is known as such: longer than any repeat of its last steps takes
REPLY_ENDS_SECONDS = 1.0  # when a running reply will end is not known; clients ask again after this
NO_TOKENS, NO_PLACE = 1, 2  # verdicts of reserve.lua


async def reserve(
    organization_id: UUID, request_id: UUID, plan: PlanLimits, tokens: int, ttl_seconds: float
) -> Remaining:
    """Takes `tokens` from the plan's minute and one place among its replies, until settled or not renewed in time.

    Idempotent by request. Raises TokensPerMinuteExceeded, TooManyReplies, RequestExceedsLimit, Unavailable; then
    nothing was taken.
    """
    if tokens > plan.tokens_per_minute:
        raise RequestExceedsLimit(
            f"This may take {tokens:,} tokens, and the {plan.name} plan allows {plan.tokens_per_minute:,} a minute.",
            Remaining(plan, 0, 0),
        )
    args = (str(request_id), tokens, _ms(ttl_seconds), plan.tokens_per_minute, plan.concurrent)
    try:
        verdict, used, running, wait, _ = await RESERVE(async_client(), quota_prefix(organization_id), *args)
    except RedisError as error:
        raise Unavailable("The limits cannot be checked now. Try again shortly.", retry_after=2) from error
    remaining = Remaining(plan, used, running)
    if verdict == NO_TOKENS:
        message = (
            f"The {plan.name} plan allows {plan.tokens_per_minute:,} tokens a minute; "
            f"{remaining.tokens:,} are left now."
        )
        raise TokensPerMinuteExceeded(message, remaining, retry_after=wait / 1000)
    if verdict == NO_PLACE:
        message = f"The {plan.name} plan allows {plan.concurrent} replies at once, and as many are running."
        raise TooManyReplies(message, remaining, retry_after=REPLY_ENDS_SECONDS)
    return remaining


def renew_calls(items: Iterable[tuple[UUID, UUID]], ttl_seconds: float) -> list[Call]:
    """Keeps the reservations of (organization, request) alive for another `ttl_seconds`: one call per organization.

    A reservation that Redis has lost gets its place back, without tokens; all that it used is taken when it is settled.
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
