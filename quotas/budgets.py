"""What may be spent in a period, by whom. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from chatsite.accounts.protocol import KeyLimits, MemberLimits
from quotas.money import units

ORGANIZATION = "org"  # the subject that everything of an organization counts against


class Unit(StrEnum):
    """What is counted: tokens (input and output), or cost in 1e-10 of the currency."""

    TOKENS = "tokens"
    COST = "cost"


@dataclass(frozen=True)
class BudgetLimit:
    """One limit of one subject in a period. `title` begins a sentence; `scope` is plan, organization, user or key."""

    scope: str
    subject: str  # org, user:<id>, key:<id>
    title: str
    unit: Unit
    limit: int
    days: int = 0  # of a rolling period, today included; 0: the calendar month in UTC
    hard: bool = True  # refuses; a soft one only warns


def member(user_id: UUID) -> str:
    return f"user:{user_id}"


def key(chain_id: UUID) -> str:
    """Keys that replace one another are one subject."""
    return f"key:{chain_id}"


def limits_of(
    scope: str, subject: str, title: str, tokens: int | None, cost: Decimal | None, *, days: int = 0, hard: bool = True
) -> tuple[BudgetLimit, ...]:
    """One for each that is not None."""
    found = []
    if tokens is not None:
        found.append(BudgetLimit(scope, subject, title, Unit.TOKENS, tokens, days, hard))
    if cost is not None:
        found.append(BudgetLimit(scope, subject, title, Unit.COST, units(cost), days, hard))
    return tuple(found)


def of_member(limits: MemberLimits) -> tuple[BudgetLimit, ...]:
    return limits_of("user", member(limits.user_id), member_title(limits), limits.monthly_tokens, limits.monthly_cost)


def of_key(limits: KeyLimits) -> tuple[BudgetLimit, ...]:
    return limits_of("key", key(limits.chain_id), key_title(limits), limits.monthly_tokens, limits.monthly_cost)


def member_title(limits: MemberLimits) -> str:
    return f"The limit of {limits.name}"


def key_title(limits: KeyLimits) -> str:
    return f"The API key “{limits.name}”"


def counters(budgets: Iterable[BudgetLimit]) -> list[tuple[str, Unit]]:
    """What has to be counted for them, each once."""
    return list(dict.fromkeys((each.subject, each.unit) for each in budgets))
