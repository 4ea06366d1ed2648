"""How requests end, or wait again: cancelled, expired, failed, handed over, settled."""

from inference.scheduling.answers import Answer, Outcome, Released, State
from tests.inference.scheduling.book_calls import NOW, book_of, counts, enqueue, ids, start, tenant_clocks


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
    assert (head.avoid, head.emitted, head.attempt) == (("a",), 4, 5)


def test_every_replica_that_failed_it_is_remembered() -> None:
    book = book_of()
    enqueue(book, "r")
    for attempt, (failed, avoid) in enumerate([(True, "a"), (False, ""), (True, "b")]):
        start(book, "r", attempt=attempt)
        assert book.release(NOW, "r", attempt + 1, emitted=0, failed=failed, avoid=avoid) is Released.QUEUED
    assert book.peek(NOW, 1).heads[0].avoid == ("a", "b")


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
    clocks = tenant_clocks(book)
    enqueue(book, "g", tenant="greedy")
    start(book, "g")
    for number in range(2):
        enqueue(book, f"r{number}", tenant="other", now=NOW + number)
    book.settle(NOW, "g", emitted=100)
    book.reap(NOW)
    assert clocks.times["greedy"] == 300
    start(book, "r0")
    book.heartbeat(NOW, [("r0", 1, 500)])
    book.reap(NOW)
    assert "greedy" not in clocks.times
