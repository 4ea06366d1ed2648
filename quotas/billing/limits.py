"""All limits of a month or of some days in an organization: of its plan, its budgets, its members and its keys."""

from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import Q

from chatsite.accounts.models import ApiKey, Membership
from chatsite.accounts.protocol import KeyLimits
from chatsite.accounts.selectors import limits_of, working
from quotas import budgets as of
from quotas.billing.people import Names, names
from quotas.models import Budget
from quotas.protocol import BudgetLimit
from quotas.selectors import budgets_of, plan_of

LIMITED = Q(monthly_tokens__isnull=False) | Q(monthly_cost__isnull=False)


@dataclass(frozen=True)
class Watched:
    """A limit, and the budget that it is of; None of a plan, a member or a key that has a limit of its own."""

    limit: BudgetLimit
    budget_id: UUID | None = None


def limits_in(organization_id: UUID) -> list[Watched]:
    """Each once, with a title for those who see to the money."""
    of_plan = plan_of(organization_id).budgets
    subjects = {each.subject for each in of_plan}
    called = names(organization_id, _ids(subjects, "user"), _ids(subjects, "key"))
    ids = {_kind_of_row(each): each.pk for each in budgets_of(organization_id)}
    found = [Watched(replace(each, title=_title(each, called)), ids.get(_kind(each))) for each in of_plan]
    found += [Watched(each) for each in (*_of_members(organization_id), *_of_keys(organization_id))]
    return list({(_kind(each.limit), each.limit.limit): each for each in reversed(found)}.values())[::-1]


def _kind(limit: BudgetLimit) -> tuple[object, ...]:
    return limit.scope, limit.subject, limit.unit.value, limit.days, limit.hard


def _kind_of_row(row: Budget) -> tuple[object, ...]:
    """As `_kind` of its limit."""
    scope, subject = "organization", of.ORGANIZATION
    if row.subject_id is not None:
        is_member = row.scope == Budget.Scope.MEMBER
        scope, subject = ("user", of.member(row.subject_id)) if is_member else ("key", of.key(row.subject_id))
    return scope, subject, "cost" if row.limit_tokens is None else "tokens", row.days or 0, row.hard


def _of_members(organization_id: UUID) -> list[BudgetLimit]:
    places = Membership.objects.filter(LIMITED, organization_id=organization_id).select_related("user")
    limits = [limits_of(each) for each in places.order_by("created_at", "id")]
    return [limit for each in limits if each for limit in of.of_member(each)]


def _of_keys(organization_id: UUID) -> list[BudgetLimit]:
    """Those that replaced one another once, by the name of the newest."""
    keys = ApiKey.objects.filter(LIMITED, working(), organization_id=organization_id)
    return [
        limit
        for key in keys.order_by("chain_id", "-id").distinct("chain_id")
        for limit in of.of_key(
            KeyLimits(key.chain_id, key.name, monthly_tokens=key.monthly_tokens, monthly_cost=key.monthly_cost)
        )
    ]


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
