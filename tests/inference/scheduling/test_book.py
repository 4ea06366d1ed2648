"""Each operation by itself."""

from typing import Any

import pytest

from inference.scheduling.book import Answer, Book, Outcome, Refusal, Released, State
from inference.scheduling.settings import OrderSettings, SchedulerSettings

NOW = 1_000_000
RATE = 10_000.0  # tokens/s


def book_of(*replicas: str, capn: int = 10, capkv: int = 100_000) -> Book:
    book = Book()
    for replica in replicas or ("a",):
        book.describe(NOW, replica, capn=capn, capkv=capkv, peak_rate=RATE)
    return book


def enqueue(book: Book, id: str, lane: str = "paid", tenant: str = "acme", *, now: int = NOW, **given: Any) -> bool:
    size = given.pop("input", 100)
    arguments = {
        "input": size,
        "uncached": size,
        "kv": size + 100,
        "deadline": now + 30_000,
        "peak_rate": RATE,
        **given,
    }
    return book.enqueue(now, id, lane, tenant, **arguments)


def start(book: Book, id: str, replica: str = "a", *, now: int = NOW, uncached: int = 100, attempt: int = 0) -> int:
    committed = book.commit(now, id, replica, "runner", uncached=uncached, attempt=attempt)
    assert committed.refusal is Refusal.NONE
    return committed.attempt


def refused(book: Book, id: str, replica: str = "a", *, uncached: int = 100) -> Refusal:
    before = (book.running(), book.peek(NOW, 9, [replica]))
    committed = book.commit(NOW, id, replica, "runner", uncached=uncached, attempt=0)
    assert committed.attempt == 0
    assert (book.running(), book.peek(NOW, 9, [replica])) == before
    return committed.refusal


def counts(book: Book, replica: str = "a") -> tuple[int, int, int]:
    counters = book.peek(NOW, 0, [replica]).replicas[replica]
    return counters.qpf, counters.kv, counters.n


def ids(book: Book, k: int = 9) -> list[str]:
    return [head.id for head in book.peek(NOW, k).heads]


def turns(book: Book) -> set[str]:
    return {head.id for head in book.peek(NOW, 9).heads if head.turn}


# ------------------------------------------------------------------------------------------------------ enqueue


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


# -------------------------------------------------------------------------------------------------------- order


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


def test_idling_earns_no_credit() -> None:
    book = book_of(capn=1000)
    for number in range(50):
        enqueue(book, f"b{number:02}", tenant="busy", input=5000)
    for number in range(20):
        start(book, f"b{number:02}", uncached=0)
        book.settle(NOW, f"b{number:02}", emitted=2000)
    enqueue(book, "i0", tenant="idle", input=5000)
    enqueue(book, "i1", tenant="idle", input=5000)
    lead = book._backlog.lanes["paid"].clocks
    assert lead.times["idle"] == lead.times["busy"]


def test_debt_is_kept_but_bounded() -> None:
    book = book_of(capn=1000)
    enqueue(book, "r0", tenant="greedy")
    enqueue(book, "other", tenant="other")
    start(book, "r0")
    book.settle(NOW, "r0", emitted=1_000_000)
    floor = book._backlog.lanes["paid"].clocks.floor
    enqueue(book, "r1", tenant="greedy")
    assert book._backlog.lanes["paid"].clocks.times["greedy"] == floor + 65_536


def test_a_queue_that_is_empty_for_a_moment_is_no_idleness_and_the_whole_debt_stays() -> None:
    book = book_of(capn=1000)
    for number in range(2):
        enqueue(book, f"r{number}", tenant="greedy")
    enqueue(book, "other", tenant="other")
    for number in range(2):
        start(book, f"r{number}", uncached=0)
    book.settle(NOW, "r0", emitted=1_000_000)
    enqueue(book, "r2", tenant="greedy")  # r1 still runs
    clocks = book._backlog.lanes["paid"].clocks
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


def test_a_lane_that_trails_by_more_than_two_quanta_is_waited_for() -> None:
    book = book_of(capn=100, capkv=10**9)
    enqueue(book, "f0", "free", "f")
    for number in range(5):
        enqueue(book, f"p{number}", "paid", "p", now=NOW + number, input=16_000)
    for number in range(2):
        start(book, f"p{number}", uncached=16_000)
        book.first_token(NOW, f"p{number}", 1)
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
    book = book_of(capn=100, capkv=10**9)
    enqueue(book, "f0", "free", "f")
    for number in range(5):
        enqueue(book, f"p{number}", "paid", "p", now=NOW + number, input=17_000)
    for number in range(2):
        start(book, f"p{number}", uncached=17_000)
        book.first_token(NOW, f"p{number}", 1)
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


# ------------------------------------------------------------------------------------------------------- commit


def test_commit_charges_replica_tenant_and_lane_in_one_step() -> None:
    book = book_of()
    enqueue(book, "r", input=1000, kv=1500)
    assert start(book, "r", uncached=400) == 1
    assert counts(book) == (400, 1500, 1)
    lane = book._backlog.lanes["paid"]
    assert lane.clocks.times["acme"] == 400 + 0.1 * 600
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
    assert book._backlog.lanes["paid"].clocks.times["acme"] == 1000 + 2 * 50


def test_a_weight_of_four_is_charged_a_quarter() -> None:
    book = book_of()
    enqueue(book, "r", weight=4.0)
    start(book, "r")
    assert book._backlog.lanes["paid"].clocks.times["acme"] == 25


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


# ------------------------------------------------------------------------------------------------- while it runs


def test_first_token_gives_back_the_queued_prefill_once() -> None:
    book = book_of()
    enqueue(book, "r", tenant="x")
    enqueue(book, "s", tenant="y")
    start(book, "r")
    start(book, "s")
    for _ in range(2):
        assert book.first_token(NOW, "r", 1) is Answer.OK
        assert counts(book) == (100, 400, 2)
    assert book.first_token(NOW, "r", 2) is Answer.STALE
    assert book.first_token(NOW, "never", 1) is Answer.UNKNOWN


def test_a_prompt_counts_as_read_from_its_first_token_until_its_lease_ends() -> None:
    book = book_of()

    def read() -> int:
        return book.peek(NOW, 0, ["a"]).replicas["a"].read

    for end in (lambda: book.settle(NOW, "r"), lambda: book.release(NOW, "r", 1, emitted=7)):
        enqueue(book, "r")
        start(book, "r")
        assert read() == 0
        for _ in range(2):
            book.first_token(NOW, "r", 1)
            assert read() == 100
        end()
        assert read() == 0
    start(book, "r", attempt=1)
    assert read() == 0
    book.heartbeat(NOW, [("r", 2, 8)])
    assert read() == 100


def test_a_heartbeat_with_tokens_makes_up_for_a_first_token_that_was_lost() -> None:
    book = book_of()
    enqueue(book, "r")
    start(book, "r")
    book.heartbeat(NOW, [("r", 1, 0)])
    assert counts(book)[0] == 100
    book.heartbeat(NOW, [("r", 1, 1)])
    assert counts(book)[0] == 0


def test_output_is_charged_as_it_is_generated_and_once() -> None:
    book = book_of()
    enqueue(book, "r")
    start(book, "r")
    times = book._backlog.lanes["paid"].clocks.times
    for emitted, expected in ((10, 120), (10, 120), (7, 120), (15, 130)):
        book.heartbeat(NOW, [("r", 1, emitted)])
        assert times["acme"] == expected


def test_the_tokens_since_the_last_heartbeat_are_charged_at_the_end() -> None:
    book = book_of()
    enqueue(book, "r")
    enqueue(book, "s")
    start(book, "r")
    book.settle(NOW, "r", emitted=40)
    assert book._backlog.lanes["paid"].clocks.times["acme"] == 180


def test_a_reply_that_outgrows_its_estimate_takes_more_kv_and_gives_all_of_it_back() -> None:
    book = book_of()
    enqueue(book, "r", input=100, kv=150)
    start(book, "r")
    book.heartbeat(NOW, [("r", 1, 30)])
    assert counts(book)[1] == 150
    book.heartbeat(NOW, [("r", 1, 400)])
    assert counts(book)[1] == 500
    book.settle(NOW, "r", emitted=400)
    assert counts(book) == (0, 0, 0)


def test_a_heartbeat_renews_and_answers_for_each() -> None:
    book = book_of()
    for id in ("r", "s", "t"):
        enqueue(book, id, tenant=id)
        start(book, id)
    book.cancel(NOW, "s")
    book.preempt(NOW, "t", 1)
    beats = [("r", 1, 0), ("s", 1, 0), ("t", 1, 0), ("r", 2, 0), ("never", 1, 0)]
    expected = (Answer.OK, Answer.CANCELLED, Answer.PREEMPTED, Answer.STALE, Answer.UNKNOWN)
    assert book.heartbeat(NOW + 6000, beats) == expected
    assert {lease.expiry for lease in book.running()} == {NOW + 13_000}


# ------------------------------------------------------------------------------------------------------ its end


def test_s12_s13_cancel_ends_what_waits_and_tells_what_runs() -> None:
    book = book_of()
    enqueue(book, "waits", tenant="x")
    enqueue(book, "runs", tenant="y")
    start(book, "runs")
    assert book.cancel(NOW, "waits") is State.QUEUED
    assert book.cancel(NOW, "waits") is State.ENDED
    assert book.cancel(NOW, "runs") is State.RUNNING
    assert book.cancel(NOW, "never") is State.UNKNOWN
    assert book.reap(NOW) == (("waits", Outcome.CANCELLED),)
    assert book.reap(NOW) == (("waits", Outcome.CANCELLED),)  # until it is settled
    book.settle(NOW, "waits")
    assert book.reap(NOW) == ()


def test_one_is_taken_out_of_the_queue_only_while_it_waits() -> None:
    book = book_of()
    enqueue(book, "waits", tenant="x")
    enqueue(book, "runs", tenant="y")
    start(book, "runs")
    assert book.cancel(NOW, "runs", waiting=True) is State.RUNNING
    assert book.heartbeat(NOW, [("runs", 1, 0)]) == (Answer.OK,)
    assert book.cancel(NOW, "waits", waiting=True) is State.QUEUED
    assert book.cancel(NOW, "waits", waiting=True) is State.ENDED
    assert book.cancel(NOW, "never", waiting=True) is State.UNKNOWN
    assert book.reap(NOW) == (("waits", Outcome.CANCELLED),)


def test_s12_a_request_cancelled_during_a_retry_ends() -> None:
    book = book_of()
    enqueue(book, "r")
    start(book, "r")
    book.cancel(NOW, "r")
    assert book.release(NOW, "r", 1, emitted=0, failed=True) is Released.CANCELLED
    assert book.reap(NOW) == (("r", Outcome.CANCELLED),)


def test_s2_an_expired_lease_gives_everything_back_and_the_request_waits_at_its_old_rank() -> None:
    book = book_of()
    enqueue(book, "r")
    enqueue(book, "later", now=NOW + 1000)
    start(book, "r")
    book.heartbeat(NOW + 500, [("r", 1, 5)])
    assert book.reap(NOW + 7499) == ()
    assert len(book.running()) == 1
    book.reap(NOW + 7500)
    assert book.running() == ()
    assert counts(book) == (0, 0, 0)
    [head, _] = book.peek(NOW, 9).heads
    assert (head.id, head.attempt, head.emitted) == ("r", 1, 5)
    assert start(book, "r", attempt=1, now=NOW + 8000) == 2


def test_three_attempts_without_success_are_a_failure() -> None:
    book = book_of()
    enqueue(book, "r")
    for attempt in range(2):
        start(book, "r", attempt=attempt)
        assert book.release(NOW, "r", attempt + 1, emitted=0, failed=True) is Released.QUEUED
    start(book, "r", attempt=2)
    assert book.reap(NOW + 8000) == (("r", Outcome.FAILED),)
    assert book.place("r").state is State.ENDED


def test_a_handover_is_no_failure_and_says_what_to_avoid() -> None:
    book = book_of()
    enqueue(book, "r")
    for attempt in range(5):
        start(book, "r", attempt=attempt)
        assert book.release(NOW, "r", attempt + 1, emitted=attempt, avoid="a") is Released.QUEUED
        assert book.release(NOW, "r", attempt + 1, emitted=attempt) is Released.STALE
    [head] = book.peek(NOW, 1).heads
    assert (head.avoid, head.emitted, head.attempt) == ("a", 4, 5)


def test_a_preempted_request_waits_again_and_counts_its_preemptions() -> None:
    book = book_of()
    enqueue(book, "r", "batch")
    start(book, "r")
    book.preempt(NOW, "r", 1)
    assert book.release(NOW, "r", 1, emitted=3, preempted=True) is Released.QUEUED
    start(book, "r", attempt=1)
    [lease] = book.running()
    assert (lease.preemptions, lease.first_token) == (1, True)
    assert book.heartbeat(NOW, [("r", 2, 3)]) == (Answer.OK,)


def test_what_waits_too_long_expires_but_not_while_the_model_loads() -> None:
    book = book_of()
    enqueue(book, "r", deadline=NOW + 1000)
    assert book.reap(NOW + 2000, loading=True) == ()
    assert book.reap(NOW + 11_999) == ()
    assert book.reap(NOW + 12_000) == (("r", Outcome.EXPIRED),)


def test_a_reclaimed_request_may_wait_again_and_keeps_a_later_deadline() -> None:
    book = book_of()
    enqueue(book, "soon", tenant="x", deadline=NOW + 1000)
    enqueue(book, "tomorrow", "batch", "y", deadline=NOW + 86_400_000)
    start(book, "soon")
    start(book, "tomorrow")
    book.reap(NOW + 8000)
    assert book.reap(NOW + 17_999) == ()
    assert book.reap(NOW + 18_000) == (("soon", Outcome.EXPIRED),)


def test_settle_releases_whatever_state_and_is_idempotent() -> None:
    book = book_of()
    for id in ("waits", "runs"):
        enqueue(book, id, tenant=id)
    start(book, "runs")
    for id in ("waits", "runs"):
        assert book.settle(NOW, id)
        assert not book.settle(NOW, id)
    assert counts(book) == (0, 0, 0)
    assert ids(book) == []


def test_a_tenant_without_debt_is_forgotten_at_its_last_settle() -> None:
    book = book_of(capn=100)
    lane = book._backlog.lanes["paid"]
    enqueue(book, "busy0", tenant="busy")
    enqueue(book, "busy1", tenant="busy")
    start(book, "busy0")
    book.heartbeat(NOW, [("busy0", 1, 500)])
    enqueue(book, "a", tenant="guest")
    assert lane.clocks.times["guest"] == 1100
    book.cancel(NOW, "a")
    book.settle(NOW, "a")
    assert "guest" not in lane.clocks.times
    assert "guest" not in lane.weights


def test_a_debt_is_forgotten_once_others_have_caught_up() -> None:
    book = book_of(capn=100)
    lane = book._backlog.lanes["paid"]
    enqueue(book, "g", tenant="greedy")
    start(book, "g")
    for number in range(2):
        enqueue(book, f"r{number}", tenant="other", now=NOW + number)
    book.settle(NOW, "g", emitted=100)
    book.reap(NOW)
    assert lane.clocks.times["greedy"] == 300
    start(book, "r0")
    book.heartbeat(NOW, [("r0", 1, 500)])
    book.reap(NOW)
    assert "greedy" not in lane.clocks.times


# --------------------------------------------------------------------------------------------------- Redis loss


def test_a_stream_that_redis_lost_is_entered_again_without_a_charge() -> None:
    book = book_of()
    given = {"attempt": 2, "replica": "a", "runner": "runner", "input": 100, "kv": 200, "emitted": 150}
    given |= {"uncached": 0, "deadline": NOW, "rank": float(NOW)}
    assert book.reopen(NOW, "r", "paid", "acme", **given)  # type: ignore[arg-type]
    assert book.reopen(NOW, "r", "paid", "acme", **given)  # type: ignore[arg-type]
    assert not book.reopen(NOW, "r", "paid", "acme", **given | {"attempt": 3})  # type: ignore[arg-type]
    assert counts(book) == (0, 250, 1)
    assert book._backlog.lanes["paid"].clocks.times["acme"] == 0
    [lease] = book.running()
    assert lease.first_token
    assert book.heartbeat(NOW, [("r", 2, 160)]) == (Answer.OK,)
    book.settle(NOW, "r", emitted=160)
    assert counts(book) == (0, 0, 0)


# ------------------------------------------------------------------------------------------------------ waiting


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
