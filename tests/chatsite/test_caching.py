"""The in-process cache forgets in time and stays small."""

import pytest

from chatsite import caching
from chatsite.caching import ShortCache


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(caching.time, "monotonic", lambda: now[0])
    return now


def test_a_value_is_forgotten_after_its_time(clock: list[float]) -> None:
    cache: ShortCache[str, int] = ShortCache(5)
    cache.put("a", 1)
    clock[0] += 5
    assert cache.get("a") == 1
    clock[0] += 0.1
    assert cache.get("a") is None


def test_it_never_holds_more_than_its_limit(clock: list[float]) -> None:
    cache: ShortCache[int, int] = ShortCache(5, limit=10)
    for number in range(100):
        cache.put(number, number)
        assert len(cache._entries) <= 10
    assert cache.get(99) == 99


def test_what_is_old_makes_room_first(clock: list[float]) -> None:
    cache: ShortCache[int, int] = ShortCache(5, limit=2)
    cache.put(1, 1)
    clock[0] += 4
    cache.put(2, 2)
    clock[0] += 2
    cache.put(3, 3)
    assert (cache.get(1), cache.get(2), cache.get(3)) == (None, 2, 3)
