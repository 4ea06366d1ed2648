"""Plans, budgets, and where an organization stands, read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q, Sum
from django.utils import timezone
from redis.exceptions import RedisError

from chatsite.accounts.models import Organization
from chatsite.accounts.protocol import Principal
from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.errors import Unavailable
from chatsite.redis import Arg, async_client
from quotas import budgets as of
from quotas import counters
from quotas.billing.grants import raised
from quotas.ledger import costs_of
from quotas.models import Budget, Isolation, LedgerEntry, Plan, Stop
from quotas.money import amount
from quotas.periods import Period, day_number, midnight, today
from quotas.prices import aprice_of, price_of
from quotas.protocol import Bucket, BudgetLimit, PlanLimits, Remaining, Spending, Standing, Unit, buckets_of
from quotas.scripts import STANDING, quota_prefix

__all__ = [
    "PlanLimits",
    "Remaining",
    "aplan_of",
    "aprice_of",
    "budgets_of",
    "costs_of",
    "known_plans",
    "ledger_of",
    "plan_of",
    "price_of",
    "quota",
    "quota_prefix",
    "remaining",
    "spendings",
    "spent",
]

PLAN_SECONDS: Final = 5.0  # a changed plan, budget or stop is seen everywhere after this long
NO_PLAN: Final = "none"
STOPPED: Final = "Nothing new is accepted at the moment: the operator has stopped it. Try again later."
ORGANIZATION_STOPPED: Final = (
    "Nothing new is accepted from this organization: it is stopped. Ask its owner or the operator."
)
known_plans: ShortCache[UUID, PlanLimits] = ShortCache(PLAN_SECONDS)


@dataclass(frozen=True)
class Spent:
    """Of a period: tokens (input and output) and cost, to the last digit of the ledger."""

    tokens: int
    cost: Decimal


def plan_of(organization_id: UUID) -> PlanLimits:
    """The organization's plan, else the default one, with its budgets; up to 5 s old.

    Raises ImproperlyConfigured when it has none and no plan is the default.
    """
    known = known_plans.get(organization_id)
    if known is not None:
        return known
    own = Plan.objects.filter(subscription__organization_id=organization_id).first()
    plan = own or Plan.objects.filter(is_default=True).first()
    if plan is None:
        raise ImproperlyConfigured("No plan is marked as the default: mark one in the admin.")
    limits = _limits(organization_id, plan)
    if own is None and Organization.objects.filter(pk=organization_id, awaits_plan=True).exists():
        limits = replace(limits, name=NO_PLAN, missing=True)
    known_plans.put(organization_id, limits)
    return limits


async def aplan_of(organization_id: UUID) -> PlanLimits:
    """`plan_of`, for async code: a thread is used only when the plan is not known."""
    known = known_plans.get(organization_id)
    return known if known is not None else await run_db(plan_of, organization_id)


def _limits(organization_id: UUID, plan: Plan) -> PlanLimits:
    budgets = list(budgets_of(organization_id))
    own = of.limits_of("plan", of.ORGANIZATION, f"The {plan.name} plan", plan.monthly_tokens, plan.monthly_cost)
    return PlanLimits(
        plan.name,
        plan.tier,
        plan.tokens_per_minute,
        plan.concurrent,
        plan.requests_per_minute,
        context_tokens=plan.context_tokens,
        output_tokens=plan.output_tokens,
        models=frozenset(plan.models),
        shares_cache=plan.isolation == Isolation.SHARED,
        weight=float(plan.weight),
        budgets=raised(organization_id, own + tuple(limit for each in budgets for limit in _budget_limits(each))),
        stopped=_stopped(organization_id),
    )


def budgets_of(organization_id: UUID) -> Sequence[Budget]:
    """The budgets of an organization, its members and keys, the oldest first; without those of its plan."""
    return list(Budget.objects.filter(organization_id=organization_id).order_by("created_at", "id"))


_TITLES: Final = {
    Budget.Scope.ORGANIZATION: ("organization", "The budget of your organization"),
    Budget.Scope.MEMBER: ("user", "Your budget in this organization"),
    Budget.Scope.KEY: ("key", "The budget of this API key"),
}


def _budget_limits(row: Budget) -> tuple[BudgetLimit, ...]:
    scope, title = _TITLES[Budget.Scope(row.scope)]
    subject = of.ORGANIZATION
    if row.subject_id is not None:
        subject = of.member(row.subject_id) if scope == "user" else of.key(row.subject_id)
    return of.limits_of(scope, subject, title, row.limit_tokens, row.limit_cost, days=row.days or 0, hard=row.hard)


def _stopped(organization_id: UUID) -> str:
    found = list(Stop.objects.filter(Q(organization=None) | Q(organization_id=organization_id)))
    everybody = next((each for each in found if each.organization_id is None), None)
    if everybody is not None:
        return everybody.message or STOPPED
    return (found[0].message or ORGANIZATION_STOPPED) if found else ""


# The ledger


def ledger_of(request_id: UUID) -> list[LedgerEntry]:
    """What was written down for a request; empty until it is settled."""
    return list(LedgerEntry.objects.filter(request_id=request_id).order_by("id"))


def cost_of(request_id: UUID) -> Decimal | None:
    """What a request cost, refunds and corrections counted in; None until it is settled."""
    total: Decimal | None = LedgerEntry.objects.filter(request_id=request_id).aggregate(total=Sum("cost"))["total"]
    return total


def spent(
    organization_id: UUID, period: Period, *, user: UUID | None = None, keys: Sequence[UUID] | None = None
) -> Spent:
    """What the ledger says of requests that were accepted in the period; of all, or of one user or some API keys."""
    days = counters.spent_by_day(organization_id, period, user=user, keys=keys).values()
    return Spent(sum(tokens for tokens, _ in days), sum((cost for _, cost in days), Decimal(0)))


# Where a caller stands


async def remaining(principal: Principal, plan: PlanLimits) -> Remaining:
    """Where the caller stands now, for the headers of answers that reserve nothing. Raises Unavailable."""
    if plan.missing:
        return Remaining(())
    buckets = buckets_of(principal, plan)
    try:
        _, *counts = await STANDING(async_client(), quota_prefix(principal.organization_id), *_asked(buckets))
    except RedisError as error:
        raise Unavailable(retry_after=2) from error
    return Remaining(standings(buckets, counts))


async def spendings(organization_id: UUID, budgets: Sequence[BudgetLimit]) -> list[Spending]:
    """Where budgets of an organization stand now, hard and soft, in their order. Raises Unavailable."""
    day = today()
    asked = [part for each in budgets for part in (each.subject, each.unit.value, each.days, day_number(day))]
    try:
        for _ in range(2):
            _, *counts = await STANDING(async_client(), quota_prefix(organization_id), 0, *asked)
            if -1 not in counts[::2]:
                break
            await counters.read(organization_id, of.counters(budgets))
        else:
            raise Unavailable("The budgets are being counted. Try again shortly.", retry_after=2)
    except RedisError as error:
        raise Unavailable(retry_after=2) from error
    return [
        Spending(budget, counts[2 * index], counts[2 * index + 1], _ends(budget))
        for index, budget in enumerate(budgets)
    ]


def _ends(budget: BudgetLimit) -> datetime:
    return midnight(today() + timedelta(days=1) if budget.days else Period.month(today()).end)


async def quota(principal: Principal, plan: PlanLimits) -> dict[str, Any]:
    """The data of `GET /v1/quota`. `reset`: when all of a limit will be there again. Raises Unavailable."""
    if plan.missing:
        return {"plan": plan.name, "limits": []}
    now = timezone.now()
    limits = [
        {
            "scope": standing.bucket.scope,
            "kind": kind,
            "limit": figures.limit,
            "remaining": figures.remaining,
            "reset": _time(now + timedelta(seconds=figures.reset)),
        }
        for standing in (await remaining(principal, plan)).standings
        for kind, figures in standing.figures.items()
    ]
    spendings_now = await spendings(principal.organization_id, plan.budgets_of(principal))
    return {"plan": plan.name, "limits": limits + [_budget_data(each) for each in spendings_now]}


def _budget_data(spending: Spending) -> dict[str, Any]:
    budget = spending.budget
    figures: dict[str, Any] = {
        "limit": budget.limit, "remaining": spending.left, "reserved": spending.reserved,
    }  # fmt: skip
    if budget.unit is Unit.COST:
        figures = {name: f"{amount(value).normalize():f}" for name, value in figures.items()}
        figures["currency"] = settings.CURRENCY
    return {
        "scope": budget.scope,
        "kind": "budget",
        "unit": budget.unit.value,
        "period": f"{budget.days} days" if budget.days else "month",
        "hard": budget.hard,
        **figures,
        "reset": _time(spending.ends),
    }


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _asked(buckets: Sequence[Bucket]) -> list[Arg]:
    args: list[Arg] = [len(buckets)]
    for each in buckets:
        args += (each.name, each.tokens_per_minute or 0, each.requests_per_minute or 0)
    return args


def standings(buckets: Sequence[Bucket], counts: Sequence[int]) -> tuple[Standing, ...]:
    """Of each bucket, from the scripts' answers: tokens, requests and replies of one after the other."""
    return tuple(Standing(bucket, *counts[3 * index : 3 * index + 3]) for index, bucket in enumerate(buckets))
