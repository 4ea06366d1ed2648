"""Callers with budgets, and what they reserve, settle and have taken."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.ids import new_id
from quotas import selectors, services
from quotas.budgets import BudgetLimit, Unit
from quotas.counters import Open, Requests
from quotas.models import LedgerEntry
from quotas.money import units
from quotas.protocol import PlanLimits, Used, Want

TTL = 60.0
USD = 10**10


@dataclass
class KnownRequests:
    """What PostgreSQL would say of the requests of each organization."""

    open: dict[UUID, list[Open]]
    ended: dict[UUID, dict[UUID, int]]

    def requests(self, organization_id: UUID) -> Requests:
        return Requests(self.open.get(organization_id, []), self.ended.get(organization_id, {}))


def plan(*limits: BudgetLimit, tokens: int = 10_000_000, concurrent: int = 10_000, **more: Any) -> PlanLimits:
    return PlanLimits("test", "paid", tokens, concurrent, budgets=limits, **more)


def of_org(cost: str | None = None, tokens: int | None = None, *, days: int = 0, hard: bool = True) -> BudgetLimit:
    unit, limit = (Unit.COST, units(Decimal(cost))) if cost is not None else (Unit.TOKENS, tokens or 0)
    return BudgetLimit("organization", "org", "The budget of your organization", unit, limit, days, hard)


def caller(organization: UUID | None = None, **more: Any) -> Principal:
    return Principal(new_id(), organization or new_id(), **more)


async def reserve(who: Principal, limits: PlanLimits, tokens: int = 0, cost: str = "0", id: UUID | None = None) -> UUID:
    request = id or new_id()
    wanted = Want(0, tokens, units(Decimal(cost)))
    await services.reserve(who, limits, {request: wanted}, TTL)
    return request


async def settle(who: Principal, request: UUID, tokens: int = 0, cost: str = "0") -> None:
    """The ledger first, as always; then Redis."""
    await run_db(write, who, request, tokens, Decimal(cost))
    assert await services.settle(who.organization_id, request, Used(0, tokens, units(Decimal(cost))))


def write(who: Principal, request: UUID, tokens: int, cost: Decimal) -> None:
    LedgerEntry.objects.create(
        request_id=request, organization_id=who.organization_id, user_id=who.user_id, api_key_id=who.api_key_id,
        model="m", input=0, cached=0, output=tokens, cost=cost, outcome="succeeded", source="engine",
    )  # fmt: skip


async def taken(who: Principal, limit: BudgetLimit) -> int:
    [found] = await selectors.spendings(who.organization_id, [limit])
    return found.taken
