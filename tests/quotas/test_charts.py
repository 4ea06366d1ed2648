"""The geometry of charts."""

from decimal import Decimal

import pytest

from quotas.charts import bar_chart, ceiling, share, short


@pytest.mark.parametrize(
    ("most", "top"),
    [
        (0, "1"),
        (-3, "1"),
        (1, "1"),
        (3, "5"),
        (11, "20"),
        (2400, "2500"),
        (99, "100"),
        (Decimal("0.0000121"), "0.00002"),
    ],
)
def test_the_axis_ends_at_a_number_that_is_easy_to_read(most: int | Decimal, top: str) -> None:
    assert ceiling(most) == Decimal(top)


def test_bars_stand_on_the_ground_one_part_upon_the_other() -> None:
    chart = bar_chart([("a", (10, 30)), ("b", (0, 0)), ("c", (50, 0))], short)
    assert chart.ticks == ("50", "25", "0")
    assert chart.width == 30
    assert [(piece.series, piece.top, piece.height) for piece in chart.bars[0].pieces] == [
        (0, 80.0, 20.0),
        (1, 20.0, 60.0),
    ]
    assert chart.bars[1].pieces == []
    assert chart.bars[2].pieces[0].height == 100.0
    assert [bar.slot for bar in chart.bars] == [0.0, 10.0, 20.0]


def test_a_day_with_more_refunds_than_use_has_no_bar() -> None:
    assert bar_chart([("a", (Decimal(-1),)), ("b", (Decimal(2),))], short).bars[0].pieces == []
    assert bar_chart([("a", (Decimal(-1),))], short).ticks == ("1", "0.5", "0")
    assert bar_chart([], short).bars == []


def test_shares_are_percent_and_what_is_there_can_be_seen() -> None:
    assert share(1, 4) == 25.0
    assert share(1, 1_000_000) == 0.5
    assert share(9, 4) == 100.0
    assert (share(0, 4), share(-1, 4), share(1, 0)) == (0.0, 0.0, 0.0)


def test_short_numbers() -> None:
    assert [short(each) for each in (0, 950, 1200, 3_000_000, 2_500_000_000, Decimal("0.5"))] == [
        "0", "950", "1.2 K", "3 M", "2.5 B", "0.5",
    ]  # fmt: skip
