"""What is usual, and what is ten times that."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from quotas.billing import unusual

FLOOR = Decimal("1.00")


@pytest.mark.parametrize(
    ("hourly", "usual"),
    [
        ([], "1"),  # never used
        (["0", "0"], "1"),
        (["0.0000000001"] * 300, "1"),
        (["2", "4", "6"], "4"),
        (["2", "4"], "3"),
        (["0", "0", "0", "0", "2", "4", "6"], "4"),  # hours of sleep do not count
        (["2", "2", "2", "1000"], "2"),  # nor does an outlier
        (["-5", "3"], "3"),  # an hour in which more was paid back than spent
    ],
)
def test_what_is_usual(hourly: list[str], usual: str) -> None:
    assert unusual.usual(map(Decimal, hourly), FLOOR) == Decimal(usual)


@pytest.mark.parametrize(("spent", "found"), [("39.9999999999", False), ("40", True), ("0", False), ("4000", True)])
def test_ten_times_that_is_unusual(spent: str, found: bool) -> None:
    assert unusual.is_unusual(Decimal(spent), Decimal(4)) is found


@pytest.mark.parametrize(
    ("now", "end"),
    [
        (datetime(2026, 12, 1, 0, 30, tzinfo=UTC), datetime(2026, 11, 30, 23, 0, tzinfo=UTC)),
        (datetime(2026, 12, 1, 1, 0, tzinfo=UTC), datetime(2026, 12, 1, 0, 0, tzinfo=UTC)),
        (datetime(2027, 1, 1, 0, 0, tzinfo=UTC), datetime(2026, 12, 31, 23, 0, tzinfo=UTC)),
    ],
)
def test_whole_hours_before_the_past_one_tell_it(now: datetime, end: datetime) -> None:
    assert unusual.looked_back(now) == (end - timedelta(days=14), end)
