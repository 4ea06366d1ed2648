"""The ledger's row of a request."""

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import DatabaseError, transaction

from chatsite.ids import new_id
from quotas import services
from quotas.models import LedgerEntry
from quotas.protocol import Prices


@dataclass(frozen=True)
class Tokens:
    input: int
    cached: int
    output: int


def record(request_id: UUID, used: Tokens, **changes: object) -> None:
    fields = {
        "request_id": request_id,
        "organization_id": new_id(),
        "user_id": new_id(),
        "api_key_id": None,
        "model": "small",
        "prices": Prices(Decimal("0.10"), Decimal("0.01"), Decimal("0.40")),
        "usage": used,
        "outcome": "succeeded",
        "source": "engine",
    }
    services.record_usage(**{**fields, **changes})


def test_s23_one_ledger_row_for_each_request(db: None) -> None:
    request_id = new_id()
    record(request_id, Tokens(812, 640, 245))
    record(request_id, Tokens(812, 640, 999), outcome="failed")
    row = LedgerEntry.objects.get(request_id=request_id)
    assert (row.input, row.cached, row.output, row.outcome) == (812, 640, 245, "succeeded")
    assert row.cost == Decimal("0.0001216000")  # (172 * 0.10 + 640 * 0.01 + 245 * 0.40) / 1,000,000


def test_s23_a_request_that_gave_nothing_has_a_row_that_costs_nothing(db: None) -> None:
    request_id = new_id()
    record(request_id, Tokens(0, 0, 0), outcome="cancelled")
    assert LedgerEntry.objects.get(request_id=request_id).cost == 0


def test_the_ledger_row_shares_the_fate_of_the_transaction(db: None) -> None:
    request_id = new_id()
    with pytest.raises(RuntimeError), transaction.atomic():
        record(request_id, Tokens(1, 0, 1))
        raise RuntimeError
    assert not LedgerEntry.objects.filter(request_id=request_id).exists()


@pytest.mark.parametrize("change", ["update", "delete"])
def test_s24_the_ledger_is_append_only(db: None, change: str) -> None:
    record(new_id(), Tokens(1, 0, 1))
    rows = LedgerEntry.objects.all()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.update(cost=0) if change == "update" else rows.delete()
    assert rows.get().input == 1


def test_s24_the_ledger_outlives_the_account(db: None, person) -> None:
    organization_id = person.organization.id
    record(new_id(), Tokens(1, 0, 1), organization_id=organization_id, user_id=person.user.id)
    person.organization.delete()
    person.user.delete()
    assert LedgerEntry.objects.filter(organization_id=organization_id).count() == 1
