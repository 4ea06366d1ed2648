"""What a commit charges and what it refuses: gates, slots, memory, replicas."""

from inference.scheduling.answers import Refusal
from tests.inference.scheduling.book_calls import NOW, RATE, book_of, counts, enqueue, refused, start, tenant_clocks


def test_commit_charges_replica_tenant_and_lane_in_one_step() -> None:
    book = book_of()
    enqueue(book, "r", input=1000, kv=1500)
    assert start(book, "r", uncached=400) == 1
    assert counts(book) == (400, 1500, 1)
    assert tenant_clocks(book).times["acme"] == 400 + 0.1 * 600
    assert book._backlog.clocks.times["paid"] == (400 + 0.1 * 600) / 30
    [lease] = book.running()
    assert (lease.id, lease.attempt, lease.expiry) == ("r", 1, NOW + 7000)


def test_a_prompt_that_is_read_again_is_not_charged_again() -> None:
    book = book_of()
    enqueue(book, "r", input=1000, kv=1500)
    start(book, "r", uncached=1000)
    book.release(NOW, "r", 1, emitted=50, preempted=True)
    assert start(book, "r", uncached=1050, attempt=1) == 2
    assert counts(book) == (1050, 1500, 1)
    assert tenant_clocks(book).times["acme"] == 1000 + 2 * 50


def test_a_weight_of_four_is_charged_a_quarter() -> None:
    book = book_of()
    enqueue(book, "r", weight=4.0)
    start(book, "r")
    assert tenant_clocks(book).times["acme"] == 25


def test_a_commit_that_is_repeated_gets_the_same_answer_and_another_runner_none() -> None:
    book = book_of("a", "b")
    enqueue(book, "r")
    start(book, "r")
    assert start(book, "r") == 1
    assert counts(book) == (100, 200, 1)
    for replica, runner in (("a", "other"), ("b", "runner")):
        assert book.commit(NOW, "r", replica, runner, uncached=1, attempt=0).refusal is Refusal.GONE
    assert book.commit(NOW, "never", "a", "runner", uncached=1, attempt=0).refusal is Refusal.GONE


def test_a_prompt_larger_than_its_gate_runs_where_nothing_is_queued_and_only_there() -> None:
    book = book_of(capkv=10**9)
    for id, tokens in (("big", 40_000), ("small", 100), ("next", 100)):
        enqueue(book, id, tenant=id, input=tokens)
    start(book, "big", uncached=40_000)
    assert refused(book, "small") is Refusal.GATE
    book.first_token(NOW, "big", 1)
    start(book, "small")
    assert refused(book, "next", uncached=9_901) is Refusal.GATE
    start(book, "next", uncached=9_900)  # 1 s of 10,000 tokens/s with what is queued


def test_a_prompt_passes_a_gate_where_no_more_is_queued_than_it_has_cached() -> None:
    book = book_of(capkv=10**9)
    enqueue(book, "first", tenant="x", input=20_000)
    enqueue(book, "next", tenant="y", input=30_000)
    enqueue(book, "free", "free", input=30_000)
    start(book, "first", uncached=20_000)
    assert refused(book, "next", uncached=10_001) is Refusal.GATE
    assert refused(book, "free", uncached=5000) is Refusal.GATE
    start(book, "next", uncached=10_000)


def test_lanes_leave_room_for_those_above_them() -> None:
    book = book_of(capn=10)
    for number in range(10):
        for lane in ("free", "batch", "paid"):
            enqueue(book, f"{lane}{number}", lane, f"{lane}{number}", input=1)
    for number in range(7):
        start(book, f"batch{number}", uncached=0)
    assert refused(book, "batch7") is Refusal.SLOTS
    for number in range(2):
        start(book, f"free{number}", uncached=0)
    assert refused(book, "free2") is Refusal.SLOTS
    start(book, "paid0", uncached=0)
    assert refused(book, "paid1") is Refusal.SLOTS


def test_a_lanes_ceiling_holds_for_kv_too_and_an_empty_replica_takes_anything() -> None:
    book = book_of(capkv=10_000)
    enqueue(book, "huge", "free", "a", input=50_000)
    enqueue(book, "small", "free", "b", kv=1000)
    start(book, "huge", uncached=0)
    assert refused(book, "small") is Refusal.KV
    book.settle(NOW, "huge")
    enqueue(book, "most", "paid", "c", kv=8000)
    start(book, "most", uncached=0)
    enqueue(book, "fits", "free", "d", kv=1001)
    assert refused(book, "fits") is Refusal.KV
    start(book, "small", uncached=0)  # 9,000 of 10,000


def test_a_replica_whose_kv_is_not_known_has_no_kv_limit() -> None:
    book = book_of(capkv=0)
    for number in range(3):
        enqueue(book, f"r{number}", tenant=str(number), kv=10**9)
        start(book, f"r{number}", uncached=0)


def test_a_replica_that_drains_or_was_never_described_takes_nothing_and_keeps_what_it_has() -> None:
    book = book_of()
    enqueue(book, "r", tenant="x")
    enqueue(book, "s", tenant="y")
    start(book, "r")
    book.describe(NOW, "a", capn=10, capkv=100_000, peak_rate=RATE, open=False)
    assert refused(book, "s") is Refusal.REPLICA
    assert refused(book, "s", "never") is Refusal.REPLICA
    assert counts(book) == (100, 200, 1)
