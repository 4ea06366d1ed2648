"""The paged KV memory of one engine, with its prefix cache: which blocks are held, cached or free."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Blocks are counted, and those with a hash are also known by it.

    Every block is in one of four states: free, private (held by one sequence, without a hash that others could find),
    shared (hashed and held by at least one sequence) or cached (hashed, held by none, reused or evicted, oldest first).
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.private = 0
        self._shared: dict[int, int] = {}  # hash -> sequences that hold it
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be had at once: free ones and those whose content nobody holds."""
        return self.total - self.private - len(self._shared)

    @property
    def free(self) -> int:
        return self.available - len(self._cached)

    @property
    def cached(self) -> int:
        return len(self._cached)

    def usage(self) -> float:
        """The share that sequences hold, as the engine reports it."""
        return 1 - self.available / self.total

    def match(self, hashes: Sequence[int], most: int) -> int:
        """How many of the first `most` hashes are here without a gap."""
        count = 0
        for key in hashes[:most] if most < len(hashes) else hashes:
            if key not in self._shared and key not in self._cached:
                break
            count += 1
        return count

    def idle_among(self, hashes: Iterable[int]) -> int:
        """How many of these would leave the cache, that is, lower `available`, if they were held."""
        return sum(key in self._cached for key in hashes)

    def hold(self, hashes: Iterable[int]) -> None:
        """Holds blocks that `match` found."""
        for key in hashes:
            if key in self._cached:
                del self._cached[key]
                self._shared[key] = 1
            else:
                self._shared[key] += 1

    def take(self, count: int) -> None:
        """Holds `count` more private blocks; the oldest cached ones make room. Needs `available >= count`."""
        if count > self.available:
            raise MemoryError(f"{count} blocks wanted, {self.available} available")
        for _ in range(count - self.free):
            self._cached.popitem(last=False)
        self.private += count

    def publish(self, hashes: Iterable[int]) -> list[int]:
        """Private blocks that are full now get their hash; returns those that others can find.

        A block that somebody else computed at the same time stays private: the engine does not merge twins.
        """
        found = []
        for key in hashes:
            if key not in self._shared and key not in self._cached:
                self._shared[key] = 1
                found.append(key)
        self.private -= len(found)
        return found

    def drop(self, private: int, hashes: Sequence[int]) -> None:
        """Gives back private blocks and held hashed ones; prompts' ends will be evicted before their beginnings."""
        self.private -= private
        for key in reversed(hashes):
            holders = self._shared[key] - 1
            if holders:
                self._shared[key] = holders
            else:
                del self._shared[key]
                self._cached[key] = None
