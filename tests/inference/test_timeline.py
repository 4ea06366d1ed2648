"""What happened to a request, and how long each part took."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from inference.timeline import build, duration

START = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Row:
    status: str = "queued"
    created_at: datetime = START
    deadline: datetime = START + timedelta(seconds=60)
    claimed_at: datetime | None = None
    first_token_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    released_at: datetime | None = None


def test_a_request_that_is_done() -> None:
    row = Row("succeeded", claimed_at=at(1), first_token_at=at(2), finished_at=at(10), released_at=at(10.03))
    line = build(row, at(100), output_tokens=81)
    assert [(step.name, step.since_start, step.since_last) for step in line.steps] == [
        ("Accepted and queued", "0 ms", "0 ms"),
        ("Claimed by a replica", "1.00 s", "1.00 s"),
        ("First token", "2.00 s", "1.00 s"),
        ("Done", "10.0 s", "8.00 s"),
        ("Released by queue and quota", "10.0 s", "30 ms"),
    ]
    assert [(part.kind, part.left, part.width, part.open) for part in line.parts] == [
        ("waiting", 0, 10, False),
        ("prompt", 10, 10, False),
        ("answer", 20, 80, False),
    ]
    assert (line.total, line.tokens_per_second) == ("10.0 s", 10.0)


def test_one_that_still_waits_and_one_that_still_writes() -> None:
    waiting = build(Row(), at(4))
    assert [(part.kind, part.width, part.open) for part in waiting.parts] == [("waiting", 100, True)]
    writing = build(Row("running", claimed_at=at(1), first_token_at=at(2)), at(4), output_tokens=50)
    assert [part.open for part in writing.parts] == [False, False, True]
    assert writing.total == "4.00 s"
    assert writing.tokens_per_second is None


@pytest.mark.parametrize(
    ("status", "word"),
    [("failed", "Failed"), ("cancelled", "Cancelled"), ("expired", "Expired"), ("shed", "Turned away")],
)
def test_ends_that_never_had_a_replica(status: str, word: str) -> None:
    line = build(Row(status, finished_at=at(3)), at(9))
    assert [step.name for step in line.steps] == ["Accepted and queued", word]
    assert [(part.kind, part.duration) for part in line.parts] == [("waiting", "3.00 s")]


def test_a_stop_is_shown_where_it_came() -> None:
    row = Row("cancelled", claimed_at=at(1), first_token_at=at(2), cancel_requested_at=at(3), finished_at=at(3.1))
    assert [step.name for step in build(row, at(9)).steps][-2:] == ["Stop asked for", "Cancelled"]


def test_a_failure_before_the_first_token() -> None:
    line = build(Row("failed", claimed_at=at(1), finished_at=at(5)), at(9))
    assert [(part.kind, part.left, part.width) for part in line.parts] == [("waiting", 0, 20), ("prompt", 20, 80)]


def test_clocks_that_disagree_break_nothing() -> None:
    row = Row("succeeded", claimed_at=at(-1), first_token_at=at(-2), finished_at=at(-3), released_at=at(-4))
    line = build(row, at(0), output_tokens=5)
    assert line.total == "0 ms"
    assert all(0 <= part.left <= 100 and 0 < part.width <= 100 for part in line.parts)
    assert all(part.left + part.width <= 100.01 for part in line.parts)
    assert (
        build(Row("succeeded", finished_at=at(0), claimed_at=at(0), first_token_at=at(0)), at(0), 9).tokens_per_second
        is None
    )


def test_a_part_that_took_no_time_is_seen() -> None:
    line = build(Row("succeeded", claimed_at=at(0), first_token_at=at(100), finished_at=at(100)), at(100))
    assert all(part.width > 0 for part in line.parts)
    assert line.parts[-1].left + line.parts[-1].width <= 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 ms"), (0, "0 ms"), (0.0004, "0 ms"), (0.34, "340 ms"), (0.9996, "1.00 s"), (1.2, "1.20 s"),
        (9.999, "10.0 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"), (125, "2 min 5 s"), (11400, "3 h 10 min"),
        (90_000, "25 h 0 min"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text
