"""Whose turn it is: lanes, tenants and requests, and who may pass."""

import pytest

from inference.scheduling.answers import Refusal
from inference.scheduling.book import Book
from inference.scheduling.settings import OrderSettings, SchedulerSettings
from tests.inference.scheduling.book_calls import NOW, book_of, enqueue, ids, refused, start, tenant_clocks, turns


def test_lanes_by_clock_then_tenants_by_time_then_requests_by_rank() -> None:
    book = book_of(capn=100)
    for number in range(2):
        enqueue(book, f"free{number}", "free", "f")
        enqueue(book, f"busy{number}", "paid", "busy", now=NOW + number)
        enqueue(book, f"calm{number}", "paid", "calm", now=NOW + number)
    start(book, "busy0")
    assert ids(book) == ["free0", "free1", "calm0", "busy1", "calm1"]
    assert ids(book, 1) == ["free0", "calm0"]


def test_lanes_that_are_level_go_in_their_order() -> None:
    book = book_of()
    for lane in ("batch", "free", "enterprise", "paid"):
        enqueue(book, lane, lane)
    assert ids(book) == ["enterprise", "paid", "free", "batch"]


def test_a_head_tells_by_how_much_its_tenant_is_ahead_of_the_least_served() -> None:
    book = book_of(capn=100)
    for number in range(2):
        enqueue(book, f"busy{number}", tenant="busy", weight=4.0, now=NOW + number)
    enqueue(book, "calm", tenant="calm")
    start(book, "busy0")
    leads = {head.id: head.lead for head in book.peek(NOW, 9).heads}
    assert leads == {"calm": 0, "busy1": 100}  # its own wtok, whatever its weight


def test_a_lane_that_has_to_wait_tells_of_no_lead() -> None:
    book = book_of(capn=100)
    for number in range(2):
        enqueue(book, f"busy{number}", tenant="busy", now=NOW + number)
    enqueue(book, "calm", tenant="calm")
    start(book, "busy0")
    enqueue(book, "free", "free")
    book.settle(NOW, "busy0", emitted=1_000_000)
    assert book.peek(NOW, 9).waited_for == "free"
    assert {head.lead for head in book.peek(NOW, 9).heads} == {0}


def test_idling_earns_no_credit() -> None:
    book = book_of(capn=1000)
    for number in range(50):
        enqueue(book, f"b{number:02}", tenant="busy", input=5000)
    for number in range(20):
        start(book, f"b{number:02}", uncached=0)
        book.settle(NOW, f"b{number:02}", emitted=2000)
    enqueue(book, "i0", tenant="idle", input=5000)
    enqueue(book, "i1", tenant="idle", input=5000)
    lead = tenant_clocks(book)
    assert lead.times["idle"] == lead.times["busy"]


def test_debt_is_kept_but_bounded() -> None:
    book = book_of(capn=1000)
    enqueue(book, "r0", tenant="greedy")
    enqueue(book, "other", tenant="other")
    start(book, "r0")
    book.settle(NOW, "r0", emitted=1_000_000)
    floor = tenant_clocks(book).floor
    enqueue(book, "r1", tenant="greedy")
    assert tenant_clocks(book).times["greedy"] == floor + 65_536


def test_a_queue_that_is_empty_for_a_moment_is_no_idleness_and_the_whole_debt_stays() -> None:
    book = book_of(capn=1000)
    for number in range(2):
        enqueue(book, f"r{number}", tenant="greedy")
    enqueue(book, "other", tenant="other")
    for number in range(2):
        start(book, f"r{number}", uncached=0)
    book.settle(NOW, "r0", emitted=1_000_000)
    enqueue(book, "r2", tenant="greedy")  # r1 still runs
    clocks = tenant_clocks(book)
    assert clocks.times["greedy"] - clocks.floor == pytest.approx(2_000_000, rel=0.001)


def test_what_is_served_while_nobody_waits_is_owed_to_nobody() -> None:
    book = book_of(capn=1000)
    enqueue(book, "f0", "free", "f")
    enqueue(book, "f1", "free", "f")
    start(book, "f0")
    start(book, "f1", uncached=0)
    book.heartbeat(NOW, [("f0", 1, 500_000)])
    enqueue(book, "p0", "paid", "p")
    enqueue(book, "f2", "free", "f")
    clocks = book._backlog.clocks
    assert clocks.times["paid"] == clocks.times["free"]
    assert ids(book) == ["p0", "f2"]


def test_a_lane_that_idled_overnight_does_not_monopolise_the_morning() -> None:
    book = book_of(capn=1000)
    enqueue(book, "f0", "free", "f")
    enqueue(book, "f1", "free", "f")
    start(book, "f0")
    book.settle(NOW, "f0", emitted=5_000_000)
    enqueue(book, "p0", "paid", "p")
    clocks = book._backlog.clocks
    assert clocks.times["paid"] == clocks.times["free"]


def test_heads_within_a_quantum_are_equals_and_others_wait_for_their_turn() -> None:
    book = book_of(capn=100, capkv=10**9)
    for tenant in ("x", "y"):
        for number in range(3):
            enqueue(book, f"{tenant}{number}", tenant=tenant, input=5000)
    start(book, "y0", uncached=5000)
    book.first_token(NOW, "y0", 1)
    assert turns(book) == {"x0", "y1"}  # 5,000 ahead: less than a quantum
    start(book, "y1", uncached=5000)
    book.first_token(NOW, "y1", 1)
    assert turns(book) == {"x0"}
    assert refused(book, "y2") is Refusal.TURN


def test_only_a_tenants_first_request_has_the_turn() -> None:
    book = book_of()
    enqueue(book, "first")
    enqueue(book, "second", now=NOW + 1)
    assert refused(book, "second") is Refusal.TURN


def with_a_lane_ahead(tokens: int) -> Book:
    """One free request waits; of five paid ones, of so many tokens each, two have been read meanwhile."""
    book = book_of(capn=100, capkv=10**9)
    enqueue(book, "f0", "free", "f")
    for number in range(5):
        enqueue(book, f"p{number}", "paid", "p", now=NOW + number, input=tokens)
    for number in range(2):
        start(book, f"p{number}", uncached=tokens)
        book.first_token(NOW, f"p{number}", 1)
    return book


def test_a_lane_that_trails_by_more_than_two_quanta_is_waited_for() -> None:
    book = with_a_lane_ahead(16_000)
    assert book.peek(NOW, 1).waited_for == ""  # 32,000 / 30 is less than 2 * 8192 / 15
    start(book, "p2", uncached=16_000)
    assert book.peek(NOW, 1).waited_for == "free"
    assert refused(book, "p3") is Refusal.TURN
    book.first_token(NOW, "p2", 1)
    start(book, "f0", uncached=0)
    assert book.peek(NOW, 1).waited_for == ""


def passing(book: Book, *, now: int = NOW) -> set[str]:
    return {head.id for head in book.peek(now, 9).heads if head.passing}


def pass_by(book: Book, id: str, *, now: int = NOW) -> Refusal:
    return book.commit(now, id, "a", "runner", uncached=0, attempt=0, passing=True).refusal


def test_what_waits_behind_a_tenants_own_first_may_pass_it_while_that_is_young() -> None:
    book = book_of()
    enqueue(book, "first")
    for number in range(2):
        enqueue(book, f"later{number}", now=NOW + 1)
    rank = NOW + 10  # 100 tokens at 10,000 tokens/s
    assert turns(book) == {"first"}
    assert passing(book) == {"later0", "later1"}
    assert passing(book, now=rank + 4999) == {"later0", "later1"}
    assert passing(book, now=rank + 5000) == set()
    assert pass_by(book, "later0", now=rank + 5000) is Refusal.TURN
    assert refused(book, "later1") is Refusal.TURN  # who does not say that the first found no place
    assert pass_by(book, "later1", now=rank + 4999) is Refusal.NONE
    assert turns(book) == {"first"}


def ahead_by(book: Book, tenant: str, wtok: int) -> None:
    """It is that much ahead of another one, whose request `least` is in its turn, and one more of it waits."""
    enqueue(book, "least", tenant="other")
    for number in range(2):
        enqueue(book, f"{tenant}{number}", tenant=tenant, input=wtok, now=NOW + number)
    start(book, f"{tenant}0", uncached=wtok)
    book.first_token(NOW, f"{tenant}0", 1)


def test_a_tenant_ahead_by_two_quanta_may_pass_the_least_served_while_that_ones_first_is_young() -> None:
    book = book_of(capkv=10**9)
    ahead_by(book, "x", 2 * 8192)
    assert turns(book) == {"least"} and passing(book) == {"x1"}
    assert passing(book, now=NOW + 5010) == set()
    assert pass_by(book, "x1", now=NOW + 5010) is Refusal.TURN
    assert refused(book, "x1") is Refusal.TURN
    assert pass_by(book, "x1", now=NOW + 5009) is Refusal.NONE


def test_a_tenant_that_is_further_ahead_may_not_pass() -> None:
    book = book_of(capkv=10**9)
    ahead_by(book, "x", 2 * 8192 + 1)
    assert passing(book) == set()
    assert pass_by(book, "x1") is Refusal.TURN


def test_nobody_passes_in_a_lane_that_waits_for_another() -> None:
    book = with_a_lane_ahead(17_000)
    assert book.peek(NOW, 1).waited_for == "free"
    assert passing(book) == set()
    assert pass_by(book, "p4") is Refusal.TURN


def test_settings_may_change_between_calls() -> None:
    book = book_of(capn=100, capkv=10**9)
    for tenant in ("x", "y"):
        for number in range(2):
            enqueue(book, f"{tenant}{number}", tenant=tenant)
    start(book, "y0")
    book.settings = SchedulerSettings(order=OrderSettings(quantum=50.0))
    assert turns(book) == {"x0"}
