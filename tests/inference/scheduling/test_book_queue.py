"""How requests come into the queues of a book, and where they stand there."""

import pytest

from inference.scheduling.answers import State
from tests.inference.scheduling.book_calls import NOW, book_of, enqueue, ids, start


def test_a_request_is_enqueued_once_whatever_its_state() -> None:
    book = book_of()
    assert enqueue(book, "r")
    assert not enqueue(book, "r")
    start(book, "r")
    assert not enqueue(book, "r")
    book.cancel(NOW, "r")
    book.release(NOW, "r", 1, emitted=0)
    assert not enqueue(book, "r")
    assert book.settle(NOW, "r")
    assert enqueue(book, "r")


def test_an_unknown_lane_is_refused_and_nothing_is_written() -> None:
    book = book_of()
    with pytest.raises(ValueError, match="no lane 'gold'"):
        enqueue(book, "r", "gold")
    assert book.place("r").state is State.UNKNOWN


def test_short_prompts_are_slightly_ahead_and_long_ones_age_past_them() -> None:
    book = book_of()
    enqueue(book, "long", input=20_000)  # 2 s at the peak rate
    enqueue(book, "short", now=NOW + 500)
    enqueue(book, "later", now=NOW + 3000)
    assert ids(book) == ["short", "long", "later"]


def test_a_prompt_is_ranked_at_most_5_seconds_behind() -> None:
    book = book_of()
    enqueue(book, "huge", input=1_000_000)
    [head] = book.peek(NOW, 1).heads
    assert head.rank == NOW + 5000
    enqueue(book, "unknown", peak_rate=0.0)
    assert {each.id: each.rank for each in book.peek(NOW, 9).heads}["unknown"] == NOW


def test_a_request_that_redis_lost_keeps_its_first_rank() -> None:
    book = book_of()
    enqueue(book, "new")
    enqueue(book, "old", now=NOW + 9000, rank=NOW - 60_000.0)
    assert ids(book) == ["old", "new"]


def test_a_place_counts_who_is_served_before() -> None:
    book = book_of()
    for number in range(10):
        enqueue(book, f"flood{number}", "free", "flood", now=NOW + number)
    enqueue(book, "guest", "free", "guest", now=NOW + 100)
    assert book.place("flood0").ahead == 0
    assert book.place("flood9").ahead == 10
    place = book.place("guest")
    assert (place.state, place.ahead, place.waiting) == (State.QUEUED, 1, 11)  # of two tenants that take turns
    start(book, "guest")
    assert book.place("guest").state is State.RUNNING
    assert book.place("never").state is State.UNKNOWN


def test_who_has_four_times_the_weight_has_four_turns_ahead() -> None:
    book = book_of()
    for number in range(10):
        enqueue(book, f"four{number}", tenant="four", now=NOW + number, weight=4.0)
    enqueue(book, "one0", tenant="one")
    enqueue(book, "one1", tenant="one", now=NOW + 1)
    assert book.place("one1").ahead == 1 + 8
    assert book.place("four9").ahead == 9 + 2
