"""How amounts of budgets are told."""

from decimal import Decimal

import pytest

from quotas.billing import words
from quotas.money import units
from quotas.protocol import BudgetLimit, Unit


def budget(unit: Unit, limit: int) -> BudgetLimit:
    return BudgetLimit("organization", "org", "The budget", unit, limit)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0.00 USD"),
        ("0.2949", "0.29 USD"),
        ("0.2852", "0.29 USD"),
        ("0.2952", "0.29 USD"),
        ("0.2999999999", "0.29 USD"),
        ("0.0000012", "0.000001 USD"),
        ("0.3", "0.30 USD"),
        ("0.3049", "0.30 USD"),
    ],
)
def test_what_is_spent_reads_as_the_limit_only_where_all_is(value: str, text: str) -> None:
    assert words.spent(budget(Unit.COST, units(Decimal("0.3"))), units(Decimal(value))) == text


@pytest.mark.parametrize(("tokens", "text"), [(0, "0 tokens"), (1, "1 token"), (1000, "1,000 tokens")])
def test_one_token_is_a_token(tokens: int, text: str) -> None:
    assert words.figure(Unit.TOKENS, tokens) == text
    assert words.spent(budget(Unit.TOKENS, 5), tokens) == text
