"""Budgets that an organization sets for itself, and its emergency stop.

Each change looks at the role of its maker, and is written into the organization's history.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.db import transaction

from chatsite.accounts import organizations
from chatsite.accounts.models import ApiKey, Membership
from chatsite.accounts.protocol import Actor
from chatsite.accounts.roles import Permission
from chatsite.errors import Conflict, InvalidInput, NotFound
from quotas.billing import money_history
from quotas.models import Budget, Stop
from quotas.selectors import known_plans
from quotas.services import resume, stop

MAX_BUDGETS: Final = 50  # of one organization: each request is checked against those that are its caller's
OWNER_STOPPED: Final = "Nothing new is accepted from this organization: its owner has stopped it."


@dataclass(frozen=True)
class Terms:
    """What a budget is for, and how much. One of `tokens` and `cost` is None; `days` None: the calendar month."""

    scope: Budget.Scope
    subject_id: UUID | None
    days: int | None
    tokens: int | None
    cost: Decimal | None
    hard: bool

    def values(self) -> dict[str, object]:
        return {
            "scope": self.scope,
            "subject_id": self.subject_id,
            "period": Budget.Period.ROLLING if self.days else Budget.Period.MONTH,
            "days": self.days,
            "limit_tokens": self.tokens,
            "limit_cost": self.cost,
            "hard": self.hard,
        }


class BudgetExists(Conflict):
    """There is such a budget already: change that one."""


class TooManyBudgets(Conflict):
    """This organization has as many budgets as one may have. Delete one first."""


class StoppedByOperator(Conflict):
    """Whoever runs this site has stopped this organization. Ask them."""


@transaction.atomic
def add(organization_id: UUID, terms: Terms, by: Actor) -> Budget:
    """Raises NotFound, NotAllowed, InvalidInput (no such member or key), BudgetExists, TooManyBudgets."""
    organizations.hold(organization_id, by, Permission.MANAGE_BUDGETS)
    if is_full(organization_id):
        raise TooManyBudgets
    _check(organization_id, terms)
    budget = _save(Budget(organization_id=organization_id), terms)
    money_history.added(budget, by)
    return budget


@transaction.atomic
def change(organization_id: UUID, budget_id: UUID, terms: Terms, by: Actor) -> Budget:
    """Raises as `add` does."""
    organizations.hold(organization_id, by, Permission.MANAGE_BUDGETS)
    budget = find(organization_id, budget_id)
    _check(organization_id, terms, budget)
    before = money_history.terms_of(budget)
    _save(budget, terms)
    money_history.changed(budget, before, by)
    return budget


@transaction.atomic
def delete(organization_id: UUID, budget_id: UUID, by: Actor) -> None:
    """Raises NotFound, NotAllowed."""
    organizations.hold(organization_id, by, Permission.MANAGE_BUDGETS)
    budget = find(organization_id, budget_id)
    money_history.deleted(budget, by)
    budget.delete()
    _forget(organization_id)


def is_full(organization_id: UUID) -> bool:
    return Budget.objects.filter(organization_id=organization_id).count() >= MAX_BUDGETS


def find(organization_id: UUID, budget_id: UUID) -> Budget:
    """Raises NotFound."""
    found = Budget.objects.filter(pk=budget_id, organization_id=organization_id).first()
    if found is None:
        raise NotFound
    return found


def _save(budget: Budget, terms: Terms) -> Budget:
    for name, value in terms.values().items():
        setattr(budget, name, value)
    budget.save()
    _forget(budget.organization_id)
    return budget


def _check(organization_id: UUID, terms: Terms, present: Budget | None = None) -> None:
    """The organization being locked."""
    kept = present is not None and (present.scope, present.subject_id) == (terms.scope, terms.subject_id)
    if not kept and not _is_there(organization_id, terms):
        raise InvalidInput("That is no member or key of this organization any more.", param="whose")
    kind = {**terms.values(), "limit_tokens": None, "limit_cost": None}
    del kind["limit_tokens" if terms.cost is None else "limit_cost"]
    same = Budget.objects.filter(organization_id=organization_id, **kind)
    if (same.exclude(pk=present.pk) if present else same).exists():
        raise BudgetExists


def _is_there(organization_id: UUID, terms: Terms) -> bool:
    if terms.subject_id is None:
        return terms.scope == Budget.Scope.ORGANIZATION
    if terms.scope == Budget.Scope.MEMBER:
        return Membership.objects.filter(organization_id=organization_id, user_id=terms.subject_id).exists()
    return ApiKey.objects.filter(organization_id=organization_id, chain_id=terms.subject_id).exists()


def _forget(organization_id: UUID) -> None:
    known_plans.drop(organization_id)
    transaction.on_commit(lambda: known_plans.drop(organization_id))


# The emergency stop


@transaction.atomic
def stop_all(organization_id: UUID, by: Actor) -> None:
    """Nothing new is accepted from the organization. Idempotent. Raises NotFound, NotAllowed, StoppedByOperator."""
    organizations.hold(organization_id, by, Permission.OWN)
    if stopped_by_owner(organization_id) is None:
        stop(organization_id, OWNER_STOPPED, by)
    elif not stopped_by_owner(organization_id):
        raise StoppedByOperator
    _forget(organization_id)


@transaction.atomic
def go_on(organization_id: UUID, by: Actor) -> None:
    """Takes the owner's stop back, and nobody else's. Idempotent. Raises NotFound, NotAllowed, StoppedByOperator."""
    organizations.hold(organization_id, by, Permission.OWN)
    if stopped_by_owner(organization_id) is False:
        raise StoppedByOperator
    resume(organization_id, by)
    _forget(organization_id)


def stopped_by_owner(organization_id: UUID) -> bool | None:
    """None: it is not stopped. False: whoever runs the site has done it."""
    found = Stop.objects.filter(organization_id=organization_id).first()
    return None if found is None else found.message == OWNER_STOPPED
