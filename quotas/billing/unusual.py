"""When a key, or a member, spends far more than is usual. Pure.

What is usual is the median of the hours (UTC) of the past 14 days in which anything was spent, and at least a floor: so
a key that was never used, or cost next to nothing, is flagged only when it costs something. Unusual are ten times that,
in the past 60 minutes.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Final

FACTOR: Final = 10
DAYS: Final = 14
HOUR: Final = timedelta(hours=1)


def usual(hourly: Iterable[Decimal], floor: Decimal) -> Decimal:
    """An hour's spending that is usual, from what was spent in each hour; hours without any do not count."""
    spent = [each for each in hourly if each > 0]
    return max(floor, median(spent)) if spent else floor


def is_unusual(spent: Decimal, usual: Decimal) -> bool:
    """`spent`: in the past 60 minutes."""
    return spent >= FACTOR * usual


def looked_back(now: datetime) -> tuple[datetime, datetime]:
    """The hours that tell what is usual: those that had ended when the past 60 minutes began."""
    end = (now - HOUR).replace(minute=0, second=0, microsecond=0)
    return end - timedelta(days=DAYS), end
