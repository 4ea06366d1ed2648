"""Rows of the ledger, as tests of what is made of it need them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from inference.protocol import Usage
from quotas import services
from quotas.protocol import Prices
from tests.quotas.moments import made

PRICES = Prices(Decimal("0.10"), Decimal("0.01"), Decimal("0.40"))


def used(organization: UUID, when: datetime | None = None, *, input: int = 10, output: int = 5, **about: Any) -> UUID:
    """A request that was accepted then (now), and is settled; returns its id."""
    request_id = made(when or datetime.now(UTC))
    values: dict[str, Any] = {
        "user_id": organization,
        "api_key_id": None,
        "model": "tiny",
        "prices": PRICES,
        "outcome": "succeeded",
        "source": "engine",
        "usage": Usage(input, 0, output),
    }
    services.record_usage(request_id=request_id, organization_id=organization, **{**values, **about})
    return request_id
