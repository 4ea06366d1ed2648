"""Plans, and where an organization stands, read."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError

from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.errors import Unavailable
from chatsite.redis import SCHEMA, async_client
from quotas.models import LedgerEntry, Plan
from quotas.protocol import PlanLimits, Remaining

__all__ = ["PlanLimits", "Remaining", "aplan_of", "known_plans", "ledger_of", "plan_of", "quota_prefix", "remaining"]

PLAN_SECONDS = 5.0  # a changed plan is seen everywhere after this long
known_plans: ShortCache[UUID, PlanLimits] = ShortCache(PLAN_SECONDS)


def plan_of(organization_id: UUID) -> PlanLimits:
    """The organization's plan, else the default one; up to 5 s old.

    Raises ImproperlyConfigured when it has none and no plan is the default.
    """
    known = known_plans.get(organization_id)
    if known is not None:
        return known
    plan = (
        Plan.objects.filter(subscription__organization_id=organization_id).first()
        or Plan.objects.filter(is_default=True).first()
    )
    if plan is None:
        raise ImproperlyConfigured("No plan is marked as the default: mark one in the admin.")
    limits = PlanLimits(plan.name, plan.tier, plan.tokens_per_minute, plan.concurrent)
    known_plans.put(organization_id, limits)
    return limits


async def aplan_of(organization_id: UUID) -> PlanLimits:
    """`plan_of`, for async code: a thread is used only when the plan is not known."""
    known = known_plans.get(organization_id)
    return known if known is not None else await run_db(plan_of, organization_id)


def ledger_of(request_id: UUID) -> list[LedgerEntry]:
    """What was written down for a request; empty until it is settled."""
    return list(LedgerEntry.objects.filter(request_id=request_id).order_by("id"))


async def remaining(organization_id: UUID, plan: PlanLimits) -> Remaining:
    """Where the organization stands now, for the headers of answers that reserve nothing. Raises Unavailable."""
    prefix = quota_prefix(organization_id)
    try:
        async with async_client().pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(f"{prefix}:bucket", ["used", "at"])
            pipe.zrange(f"{prefix}:live", 0, -1, withscores=True)
            time, bucket, live = await pipe.execute()
    except RedisError as error:
        raise Unavailable(retry_after=2) from error
    now = time[0] * 1000 + time[1] // 1000
    running = sum(1 for _, expiry in live if expiry > now)
    return Remaining(plan, drained(bucket, now, plan), running)


def quota_prefix(organization_id: UUID) -> str:
    """Where everything of an organization is in Redis: one hash slot."""
    return f"{SCHEMA}:{{o:{organization_id}}}"


def drained(bucket: Sequence[Any], now: int, plan: PlanLimits) -> int:
    """Tokens used at `now` (ms), from the bucket's `used` and `at`."""
    used, at = float(bucket[0] or 0), int(bucket[1] or now)
    return max(0, round(used - max(0, now - at) * plan.tokens_per_minute / 60_000))
