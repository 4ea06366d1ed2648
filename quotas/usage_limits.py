"""The limits that apply to somebody, as the usage page says them: what is left, and when all of it is there again."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from asgiref.sync import async_to_sync
from django.conf import settings
from django.utils import timezone

from chatsite.accounts.protocol import Principal
from chatsite.errors import Unavailable
from quotas import selectors
from quotas.charts import share
from quotas.money import amount, shown
from quotas.protocol import Figures, PlanLimits, Remaining, Spending, Standing, Unit

WORDS = {
    "tokens_per_minute": ("tokens a minute", "tokens"),
    "requests_per_minute": ("requests a minute", "requests"),
    "concurrent": ("replies at once", "replies"),
}


@dataclass(frozen=True)
class Limit:
    """One limit. `taken` in percent; `again`: when all of it is there again, None where that is now or not known.

    Where it does not `reset`, `again` is when there is more: some of the days that roll drops out.
    """

    title: str
    kind: str
    left: str
    of: str
    taken: float
    again: datetime | None = None
    note: str = ""
    resets: bool = True


def limits_of(principal: Principal) -> list[Limit] | None:
    """None while they cannot be read."""
    plan = selectors.plan_of(principal.organization_id)
    try:
        remaining, spendings = async_to_sync(_load)(principal, plan)
    except Unavailable:
        return None
    now = timezone.now()
    by_minute = [
        _of_minute(standing, kind, figures, now)
        for standing in remaining.standings
        for kind, figures in standing.figures.items()
    ]
    return by_minute + [_of_budget(each) for each in spendings]


async def _load(principal: Principal, plan: PlanLimits) -> tuple[Remaining, list[Spending]]:
    remaining = await selectors.remaining(principal, plan)
    return remaining, await selectors.spendings(principal.organization_id, plan.budgets_of(principal))


def _of_minute(standing: Standing, kind: str, figures: Figures, now: datetime) -> Limit:
    name, unit = WORDS[kind]
    return Limit(
        standing.bucket.title,
        name,
        f"{figures.remaining:,}",
        f"{figures.limit:,} {unit}",
        share(figures.limit - figures.remaining, figures.limit),
        now + timedelta(seconds=figures.reset) if figures.reset and kind != "concurrent" else None,
    )


def _of_budget(spending: Spending) -> Limit:
    budget = spending.budget
    period = "this month" if not budget.days else "today" if budget.days == 1 else f"in {budget.days} days"
    name = f"{'tokens' if budget.unit is Unit.TOKENS else 'cost'} {period}"
    notes = [] if budget.hard else ["It warns, and refuses nothing."]
    if spending.reserved:
        notes.append(f"{_figure(budget.unit, spending.reserved)} of it is held by replies that run.")
    return Limit(
        budget.title,
        name,
        _figure(budget.unit, spending.left) if budget.unit is Unit.COST else f"{spending.left:,}",
        _figure(budget.unit, budget.limit),
        share(spending.taken, budget.limit),
        spending.ends,
        " ".join(notes),
        resets=budget.days <= 1,
    )


def _figure(unit: Unit, value: int) -> str:
    return f"{value:,} tokens" if unit is Unit.TOKENS else shown(amount(value), settings.CURRENCY)
