"""Quotas without the rooms above them."""

import pytest

from quotas import counters
from tests.quotas.budget_calls import KnownRequests


@pytest.fixture
def known_requests(monkeypatch: pytest.MonkeyPatch) -> KnownRequests:
    """Those that budgets are counted with, where the ledger alone does not tell."""
    found = KnownRequests({}, {})
    monkeypatch.setattr(counters, "_requests_of", lambda: found.requests)
    return found
