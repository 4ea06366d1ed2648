"""Rows of the ledger, as tests of what is made of it need them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from chatsite.ids import first_id, new_id
from inference.protocol import Usage
from quotas import services
from tests.quotas.test_ledger import PRICES


def made(moment: datetime) -> UUID:
    """An id of that moment."""
    return UUID(int=first_id(moment).int | new_id().int & (1 << 64) - 1)


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
