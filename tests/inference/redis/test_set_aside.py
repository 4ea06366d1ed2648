"""A request that is set aside leaves nothing in the scheduler, as if it had ended, and may be enqueued again."""

from typing import Any

from inference.redis import keys
from inference.scheduling.answers import Answer, Refusal, State
from inference.scheduling.book import Book
from tests.inference.redis.twin import LuaBook


def both(lua: LuaBook, book: Book, operation: str, *given: Any, **said: Any) -> Any:
    answer = getattr(lua, operation)(*given, **said)
    assert answer == getattr(book, operation)(*given, **said)
    return answer


def enqueue(lua: LuaBook, book: Book, id: str, tenant: str, attempt: int = 0) -> None:
    said = {"input": 100, "uncached": 100, "kv": 200, "deadline": 90_000, "peak_rate": 1000.0, "attempt": attempt}
    both(lua, book, "enqueue", 1000, id, "batch", tenant, **said)


def alike(lua: LuaBook, book: Book, now: int) -> None:
    both(lua, book, "peek", now, 10, ["one"])
    for name in ("waiting", "running_by_lane", "floors", "running"):
        both(lua, book, name)


def test_it_leaves_what_one_that_ended_leaves() -> None:
    lua, book = LuaBook(), Book()
    both(lua, book, "describe", 1000, "one", capn=8, capkv=10_000, peak_rate=10_000.0)
    for id, tenant in (("a", "x"), ("b", "x"), ("c", "y")):
        enqueue(lua, book, id, tenant)
    for id in ("a", "c"):
        both(lua, book, "commit", 1001, id, "one", "runner", uncached=100, attempt=0)
    assert not both(lua, book, "set_aside", 1002, "a", 2), "another attempt has it"
    assert not both(lua, book, "set_aside", 1002, "b", 0), "it waits"
    assert not both(lua, book, "set_aside", 1002, "nobody", 1)
    alike(lua, book, 1002)
    for id in ("a", "c"):
        assert both(lua, book, "set_aside", 1003, id, 1)
        alike(lua, book, 1003)
    assert not both(lua, book, "set_aside", 1003, "a", 1)
    assert lua.place("a")[0] is State.UNKNOWN
    assert not lua.client.exists(keys.pace(lua.prefix)), "nothing has ended"
    assert lua.heartbeat(1004, [("a", 1, 0)]) == (Answer.UNKNOWN,)


def test_each_start_is_charged_so_that_no_lane_waits_for_what_comes_again_and_again() -> None:
    lua, book = LuaBook(), Book()
    both(lua, book, "describe", 1000, "one", capn=8, capkv=10_000, peak_rate=10_000.0)
    enqueue(lua, book, "a", "x")
    clocks = []
    for _ in range(3):
        assert both(lua, book, "commit", 1003, "a", "one", "runner", uncached=100, attempt=0).refusal is Refusal.NONE
        alike(lua, book, 1003)
        assert both(lua, book, "set_aside", 1004, "a", 1)
        enqueue(lua, book, "a", "x")
        clocks.append(lua.floors()["batch"])
    assert clocks[0] < clocks[1] < clocks[2]
