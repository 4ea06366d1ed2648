"""Spans of time in UTC: months' ends, zones, and what is no time."""

from datetime import UTC, date, datetime

import pytest

from chatsite.errors import InvalidInput
from quotas.spans import Span, days_of, last_days, last_month, read_span, this_month

TODAY = date(2026, 3, 31)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_months_are_whole_and_begin_at_midnight_in_utc() -> None:
    assert this_month(TODAY) == Span(at("2026-03-01"), at("2026-04-01"))
    assert last_month(TODAY) == Span(at("2026-02-01"), at("2026-03-01"))
    assert last_month(date(2026, 1, 31)) == Span(at("2025-12-01"), at("2026-01-01"))
    assert this_month(date(2028, 2, 29)).days[-1] == date(2028, 2, 29)


def test_days_include_today() -> None:
    assert last_days(7, TODAY) == days_of(date(2026, 3, 25), TODAY)
    assert len(last_days(90, TODAY).days) == 90


def test_a_day_without_an_end_is_from_the_first_of_the_month() -> None:
    assert read_span(None, None, TODAY) == days_of(date(2026, 3, 1), TODAY)
    assert read_span("2026-02-10", None, TODAY) == days_of(date(2026, 2, 10), TODAY)
    assert read_span("2026-05-01", None, TODAY) == days_of(date(2026, 5, 1), date(2026, 5, 1))


def test_a_date_at_the_end_is_included_and_a_time_is_not() -> None:
    assert read_span("2026-03-29", "2026-03-29", TODAY).end == at("2026-03-30")
    assert read_span("2026-03-29", "2026-03-29T02:00:00Z", TODAY).end == at("2026-03-29T02:00")


def test_times_of_other_zones_are_put_into_utc() -> None:
    span = read_span("2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", TODAY)
    assert span == Span(at("2026-03-28T23:00"), at("2026-03-29T22:00"))  # 23 hours: in that night one is skipped
    assert not span.whole_days
    assert span.days == [date(2026, 3, 28), date(2026, 3, 29)]
    assert read_span("2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z", TODAY).whole_days


@pytest.mark.parametrize(
    ("begin", "end", "param", "words"),
    [
        ("yesterday", None, "from", "This is no time"),
        ("", None, "from", "This is no time"),
        ("2026-02-30", None, "from", "no such time"),
        ("2026-13-01", None, "from", "no such time"),
        ("0000-01-01", None, "from", "no such time"),
        ("1969-12-31", None, "from", "from 1970 on"),
        (None, "9999-12-31", "to", "no such time"),
        ("2026-03-01T25:00:00Z", None, "from", "no such time"),
        ("2026-03-01T00:00:00", None, "from", "does not say its zone"),
        ("2026-03-01T00:00:00+99:00", None, "from", "no such time"),
        ("0001-01-01T00:00:00+14:00", None, "from", "no such time"),
        ("2026-03-01T00:00:00+05:30", None, "from", "full hour in UTC"),
        ("2026-03-01T00:00:00 01:00", None, "from", "written %2B"),
        ("2026-03-01 00:00:00Z", None, "from", "This is no time"),
        ("2026-03-01T00:30:00Z", None, "from", "full hour in UTC"),
        ("2026-03-01T00:00:00.000001Z", None, "from", "full hour in UTC"),
        ("٢٠٢٦-03-01", None, "from", "This is no time"),
        ("2026-03-02", "2026-03-01", "to", "later than 'from'"),
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z", "to", "later than 'from'"),
        ("2025-01-01", "2026-01-02", "from", "At most 366 days"),
    ],
)
def test_what_is_no_span_is_refused(begin: str | None, end: str | None, param: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        read_span(begin, end, TODAY)
    assert caught.value.param == param
