"""People who have spent something: rows in the ledger, and budgets to spend."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from chatsite.accounts.models import Organization
from chatsite.ids import first_id, new_id
from inference.protocol import Usage
from quotas import counters
from quotas.models import Budget
from quotas.protocol import Prices
from quotas.selectors import known_plans
from quotas.services import record_usage
from tests.conftest import Person

DOLLAR = Prices(Decimal(1), Decimal(1), Decimal(1))  # per million tokens: a token is 1e-6


def made(moment: datetime) -> UUID:
    """The id of a request that was accepted then."""
    return UUID(int=first_id(moment).int | new_id().int & (1 << 64) - 1)


def spend(person: Person, cost: str | Decimal, *, at: datetime | None = None, **changes: Any) -> UUID:
    """So much of the currency in one request, by the person's key unless `changes` say otherwise; returns its id."""
    values: dict[str, Any] = {
        "request_id": made(at or datetime.now(UTC)),
        "organization_id": person.organization.pk,
        "user_id": person.user.pk,
        "api_key_id": person.key.pk,
        "model": "small",
        "prices": DOLLAR,
        "usage": Usage(int(Decimal(cost) * 1_000_000), 0, 0),
        "outcome": "succeeded",
        "source": "engine",
    }
    values |= changes
    record_usage(**values)
    counters.forget(values["organization_id"])
    return UUID(str(values["request_id"]))


def has_budget(organization: Organization, limit: str | None = "10", **changes: Any) -> Budget:
    """A hard one of a month, in the currency."""
    row = Budget.objects.create(organization=organization, limit_cost=Decimal(limit) if limit else None, **changes)
    known_plans.clear()
    return row
