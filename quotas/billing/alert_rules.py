"""When a budget alerts. Pure.

What is settled counts, not what replies that run have reserved: a reservation is the most that a reply may cost, and
most of it is given back. A hard budget refuses what might go beyond it, so it is hardly ever spent to the last digit;
it counts as spent when a hundredth or less is left.
"""

from datetime import date, timedelta
from typing import Final

from quotas.periods import Period
from quotas.protocol import BudgetLimit

THRESHOLDS: Final = (50, 80, 100)  # percent
SPENT: Final = 100
HARD_SPENT: Final = 99


def reached(budget: BudgetLimit, settled: int) -> list[int]:
    """The thresholds that `settled` (in the unit of the budget) has reached, the lowest first."""
    return [each for each in THRESHOLDS if settled * 100 >= budget.limit * _percent(budget, each)]


def _percent(budget: BudgetLimit, threshold: int) -> int:
    return HARD_SPENT if budget.hard and threshold == SPENT else threshold


def period_start(budget: BudgetLimit, day: date) -> date:
    """Of the period in which a threshold is told once: the month (UTC); of rolling days, the day itself."""
    return day if budget.days else Period.month(day).start


def told_since(budget: BudgetLimit, day: date) -> date:
    """A threshold that was told in a period with this start, or a later one, is not told again."""
    return day - timedelta(days=budget.days - 1) if budget.days else Period.month(day).start
