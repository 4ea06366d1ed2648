"""All limits of a month or of some days in an organization: of its plan, its budgets, its members and its keys."""

from dataclasses import replace
from uuid import UUID

from django.db.models import Q

from chatsite.accounts.models import ApiKey, Membership
from chatsite.accounts.protocol import KeyLimits
from chatsite.accounts.selectors import limits_of, working
from quotas import budgets as of
from quotas.billing.people import Names, names
from quotas.protocol import BudgetLimit
from quotas.selectors import plan_of

LIMITED = Q(monthly_tokens__isnull=False) | Q(monthly_cost__isnull=False)


def limits_in(organization_id: UUID) -> list[BudgetLimit]:
    """Each once, with a title for those who see to the money."""
    found = list(plan_of(organization_id).budgets)
    subjects = {each.subject for each in found}
    called = names(organization_id, _ids(subjects, "user"), _ids(subjects, "key"))
    found = [replace(each, title=_title(each, called)) for each in found]
    for place in Membership.objects.filter(LIMITED, organization_id=organization_id).select_related("user"):
        own = limits_of(place)
        found += of.of_member(own) if own else ()
    keys = ApiKey.objects.filter(LIMITED, working(), organization_id=organization_id).order_by("chain_id", "-id")
    for key in keys.distinct("chain_id"):
        limits = KeyLimits(key.chain_id, key.name, monthly_tokens=key.monthly_tokens, monthly_cost=key.monthly_cost)
        found += of.of_key(limits)
    return list({_identity(each): each for each in found}.values())


def _identity(budget: BudgetLimit) -> tuple[object, ...]:
    return budget.scope, budget.subject, budget.unit, budget.days, budget.hard, budget.limit


def id_of(subject: str) -> UUID | None:
    """The user or the chain of keys; None of the organization as a whole."""
    _, _, id = subject.partition(":")
    return UUID(id) if id else None


def _ids(subjects: set[str], kind: str) -> list[UUID]:
    return [UUID(each.partition(":")[2]) for each in subjects if each.startswith(f"{kind}:")]


def _title(budget: BudgetLimit, called: Names) -> str:
    id = id_of(budget.subject)
    if id is None:
        return "The budget of the organization" if budget.scope == "organization" else budget.title
    whose = called.member(id) if budget.scope == "user" else f"the API key “{called.key(id)}”"
    return f"The budget of {whose}"
