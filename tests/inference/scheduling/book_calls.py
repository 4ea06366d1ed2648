"""Books with replicas, and what tests do with them, each in one call."""

from typing import Any

from inference.scheduling.answers import Refusal
from inference.scheduling.book import Book
from inference.scheduling.clocks import Clocks

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


def tenant_clocks(book: Book, lane: str = "paid") -> Clocks:
    return book._backlog.lanes[lane].clocks
