"""Which part of a budget counts as reached, and what is told once."""

from datetime import date

import pytest

from quotas.billing import alert_rules as rules
from quotas.protocol import BudgetLimit, Unit


def budget(limit: int = 1000, days: int = 0, hard: bool = False) -> BudgetLimit:
    return BudgetLimit("organization", "org", "It", Unit.TOKENS, limit, days, hard)


@pytest.mark.parametrize(
    ("settled", "thresholds"),
    [(-5, []), (0, []), (499, []), (500, [50]), (799, [50]), (800, [50, 80]), (999, [50, 80]), (1000, [50, 80, 100]),
     (10**15, [50, 80, 100])],
)  # fmt: skip
def test_thresholds_are_reached_exactly(settled: int, thresholds: list[int]) -> None:
    assert rules.reached(budget(), settled) == thresholds


def test_a_hard_budget_is_spent_with_a_hundredth_left() -> None:
    assert rules.reached(budget(hard=True), 989) == [50, 80]
    assert rules.reached(budget(hard=True), 990) == [50, 80, 100]
    assert rules.reached(budget(limit=1, hard=True), 0) == []
    assert rules.reached(budget(limit=2**53 - 1), 2**52) == [50]


@pytest.mark.parametrize(
    ("days", "day", "start", "since"),
    [
        (0, date(2026, 11, 30), date(2026, 11, 1), date(2026, 11, 1)),
        (0, date(2026, 12, 1), date(2026, 12, 1), date(2026, 12, 1)),
        (0, date(2028, 2, 29), date(2028, 2, 1), date(2028, 2, 1)),
        (1, date(2026, 12, 1), date(2026, 12, 1), date(2026, 12, 1)),
        (7, date(2026, 12, 1), date(2026, 12, 1), date(2026, 11, 25)),
        (90, date(2026, 12, 31), date(2026, 12, 31), date(2026, 10, 3)),
    ],
)
def test_a_threshold_is_told_once_in_a_period(days: int, day: date, start: date, since: date) -> None:
    assert rules.period_start(budget(days=days), day) == start
    assert rules.told_since(budget(days=days), day) == since
