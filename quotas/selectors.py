"""Plans, and where an organization stands, read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError

from chatsite.accounts.protocol import Principal
from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.errors import Unavailable
from chatsite.redis import SCHEMA, Arg, Script, async_client
from quotas.models import LedgerEntry, Plan
from quotas.protocol import Bucket, PlanLimits, Remaining, Standing, buckets_of

__all__ = ["PlanLimits", "Remaining", "aplan_of", "known_plans", "ledger_of", "plan_of", "quota_prefix", "remaining"]

SCRIPTS: Final = Path(__file__).parent / "redis"
BUCKETS: Final = SCRIPTS / "buckets.lua"  # ahead of every script
STANDING: Final = Script.load(SCRIPTS / "standing.lua", BUCKETS)
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
    limits = PlanLimits(plan.name, plan.tier, plan.tokens_per_minute, plan.concurrent, plan.requests_per_minute)
    known_plans.put(organization_id, limits)
    return limits


async def aplan_of(organization_id: UUID) -> PlanLimits:
    """`plan_of`, for async code: a thread is used only when the plan is not known."""
    known = known_plans.get(organization_id)
    return known if known is not None else await run_db(plan_of, organization_id)


def ledger_of(request_id: UUID) -> list[LedgerEntry]:
    """What was written down for a request; empty until it is settled."""
    return list(LedgerEntry.objects.filter(request_id=request_id).order_by("id"))


async def remaining(principal: Principal, plan: PlanLimits) -> Remaining:
    """Where the caller stands now, for the headers of answers that reserve nothing. Raises Unavailable."""
    buckets = buckets_of(principal, plan)
    args: list[Arg] = []
    for each in buckets:
        args += (each.name, each.tokens_per_minute or 0, each.requests_per_minute or 0)
    try:
        _, *counts = await STANDING(async_client(), quota_prefix(principal.organization_id), *args)
    except RedisError as error:
        raise Unavailable(retry_after=2) from error
    return Remaining(standings(buckets, counts))


def standings(buckets: Sequence[Bucket], counts: Sequence[int]) -> tuple[Standing, ...]:
    """Of each bucket, from the scripts' answers: tokens, requests and replies of one after the other."""
    return tuple(Standing(bucket, *counts[3 * index : 3 * index + 3]) for index, bucket in enumerate(buckets))


def quota_prefix(organization_id: UUID) -> str:
    """Where everything of an organization is in Redis: one hash slot."""
    return f"{SCHEMA}:{{o:{organization_id}}}"
