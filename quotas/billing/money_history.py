"""What the history of an organization says of its budgets and of stops. People are told by id alone, keys by name."""

from collections.abc import Mapping
from uuid import UUID

from chatsite.accounts import history
from chatsite.accounts.audit import Change
from chatsite.accounts.models import ApiKey, OrganizationEvent
from chatsite.accounts.protocol import Actor, Via
from quotas.billing import words
from quotas.models import Budget
from quotas.money import units
from quotas.protocol import Unit

Kind = OrganizationEvent.Kind
Terms = Mapping[str, str]  # by what they are called


def terms_of(budget: Budget) -> Terms:
    """Whom it is for, how much, and what happens then."""
    if budget.limit_cost is None:
        limit = words.figure(Unit.TOKENS, budget.limit_tokens or 0)
    else:
        limit = words.figure(Unit.COST, units(budget.limit_cost))
    return {
        "for": _whose(budget),
        "limit": f"{limit} {words.in_days(budget.days or 0)}",
        "when it is spent": "refuse" if budget.hard else "only warn",
    }


def _whose(budget: Budget) -> str:
    if budget.scope == Budget.Scope.ORGANIZATION:
        return "the whole organization"
    if budget.scope == Budget.Scope.MEMBER:
        return "a member"
    newest = ApiKey.objects.filter(chain_id=budget.subject_id or budget.pk).order_by("-created_at").first()
    return f"the API key “{newest.name}”" if newest else "an API key that is gone"


def added(budget: Budget, by: Actor) -> None:
    """In the caller's transaction, as the others are."""
    _record(Kind.BUDGET_ADDED, budget, by, {name: ("", value) for name, value in terms_of(budget).items()})


def changed(budget: Budget, before: Terms, by: Actor) -> None:
    """`before`: its terms then. Where they are the same nothing is written."""
    after = terms_of(budget)
    details = {name: (before[name], value) for name, value in after.items() if before[name] != value}
    if details:
        _record(Kind.BUDGET_CHANGED, budget, by, {"for": ("", after["for"]), **details})


def deleted(budget: Budget, by: Actor) -> None:
    """`budget`: as it was."""
    _record(Kind.BUDGET_DELETED, budget, by, {name: ("", value) for name, value in terms_of(budget).items()})


def _record(kind: OrganizationEvent.Kind, budget: Budget, by: Actor, details: Mapping[str, Change]) -> None:
    member = budget.subject_id if budget.scope == Budget.Scope.MEMBER else None
    history.record(budget.organization_id, kind, by, member_id=member, details=details)


def stopped(organization_id: UUID, message: str, by: Actor) -> None:
    """What callers are told is of interest where somebody else has chosen it."""
    details = {"callers are told": ("", message)} if message and by.via is not Via.PAGE else {}
    history.record(organization_id, Kind.STOPPED, by, details=details)


def resumed(organization_id: UUID, by: Actor) -> None:
    history.record(organization_id, Kind.RESUMED, by)
