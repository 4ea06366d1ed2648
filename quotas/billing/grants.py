"""Temporary grants: how much more an organization may use than its plan and its hard budgets say."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from quotas.billing.models import Grant
from quotas.budgets import ORGANIZATION, BudgetLimit, Unit
from quotas.money import EXACT, units
from quotas.periods import today


def raised(organization_id: UUID, limits: tuple[BudgetLimit, ...]) -> tuple[BudgetLimit, ...]:
    """The limits with what is granted now on top of those that are hard and hold for all of the organization."""
    if not any(_is_raised(each) for each in limits):
        return limits
    more = granted(organization_id)
    return tuple(
        replace(each, limit=min(EXACT, each.limit + more.get(each.unit, 0))) if _is_raised(each) else each
        for each in limits
    )


def _is_raised(limit: BudgetLimit) -> bool:
    return limit.hard and limit.subject == ORGANIZATION


def granted(organization_id: UUID) -> Mapping[Unit, int]:
    """What is granted at the moment, by unit; several grants add up."""
    found: dict[Unit, int] = {}
    for grant in Grant.objects.filter(organization_id=organization_id, ended_at=None, last_day__gte=today()):
        unit = Unit.COST if grant.tokens is None else Unit.TOKENS
        amount = units(grant.cost) if grant.cost is not None else grant.tokens or 0
        found[unit] = found.get(unit, 0) + amount
    return found
