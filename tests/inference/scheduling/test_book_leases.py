"""What runs: first tokens, heartbeats, and leases that Redis lost."""

from inference.scheduling.answers import Answer
from tests.inference.scheduling.book_calls import NOW, book_of, counts, enqueue, start, tenant_clocks


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
    times = tenant_clocks(book).times
    for emitted, expected in ((10, 120), (10, 120), (7, 120), (15, 130)):
        book.heartbeat(NOW, [("r", 1, emitted)])
        assert times["acme"] == expected


def test_the_tokens_since_the_last_heartbeat_are_charged_at_the_end() -> None:
    book = book_of()
    enqueue(book, "r")
    enqueue(book, "s")
    start(book, "r")
    book.settle(NOW, "r", emitted=40)
    assert tenant_clocks(book).times["acme"] == 180


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


def test_a_stream_that_redis_lost_is_entered_again_without_a_charge() -> None:
    book = book_of()
    given = {"attempt": 2, "replica": "a", "runner": "runner", "input": 100, "kv": 200, "emitted": 150}
    given |= {"uncached": 0, "deadline": NOW, "rank": float(NOW)}
    assert book.reopen(NOW, "r", "paid", "acme", **given)  # type: ignore[arg-type]
    assert book.reopen(NOW, "r", "paid", "acme", **given)  # type: ignore[arg-type]
    assert not book.reopen(NOW, "r", "paid", "acme", **given | {"attempt": 3})  # type: ignore[arg-type]
    assert counts(book) == (0, 250, 1)
    assert tenant_clocks(book).times["acme"] == 0
    [lease] = book.running()
    assert lease.first_token
    assert book.heartbeat(NOW, [("r", 2, 160)]) == (Answer.OK,)
    book.settle(NOW, "r", emitted=160)
    assert counts(book) == (0, 0, 0)
