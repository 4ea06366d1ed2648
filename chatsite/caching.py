"""A small in-process cache for what is read on every request and may be a few seconds old."""

import time
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ShortCache(Generic[K, V]):
    """Keeps values for `seconds`, and at most `limit` of them, so that a flood of keys cannot fill the memory."""

    def __init__(self, seconds: float, limit: int = 10_000) -> None:
        self.seconds = seconds
        self.limit = limit
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None or entry[0] < time.monotonic():
            return None
        return entry[1]

    def put(self, key: K, value: V) -> None:
        if len(self._entries) >= self.limit:
            self._make_room()
        self._entries[key] = (time.monotonic() + self.seconds, value)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()

    def _make_room(self) -> None:
        now = time.monotonic()
        live = {key: entry for key, entry in list(self._entries.items()) if entry[0] >= now}
        self._entries = live if len(live) < self.limit else {}
