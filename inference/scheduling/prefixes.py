"""Which replica has which prompt's beginning in its cache: hashes of blocks, each chained to the one before it.

A hash stands for the whole prompt up to the end of its block, so one look-up finds a match of any length. Of each
prompt only some points are kept, at lengths that are the same for all, so that two that begin alike meet at one.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from inference.scheduling.settings import PrefixSettings


def salt(model: str, domain: str) -> bytes:
    """What keeps the hashes of models and of isolation domains apart (a domain is an organization, or "" shared)."""
    return hashlib.blake2b(f"{model}\0{domain}".encode(), digest_size=16).digest()


def block_hashes(ids: Sequence[int], block_size: int, salt: bytes) -> list[int]:
    """A 64-bit hash for each full block of `block_size` token ids (below 2^32)."""
    packed = array("I", ids).tobytes()
    width = 4 * block_size
    return list(chained((packed[start : start + width] for start in range(0, len(packed) - width + 1, width)), salt))


def chained(blocks: Iterable[bytes], salt: bytes) -> Iterator[int]:
    """The hash of each block together with all before it."""
    parent = salt
    for block in blocks:
        parent = hashlib.blake2b(parent + block, digest_size=8).digest()
        yield int.from_bytes(parent, "big")


def checkpoints(count: int, most: int) -> list[int]:
    """At most `most` lengths in blocks, ascending: the longest of 1, 2, 3, 4, 6, 8, 12, ... and `count` itself."""
    lengths = {count}
    power = 1
    while power <= count:
        lengths |= {length for length in (power, power + power // 2) if length <= count}
        power *= 2
    return sorted(lengths - {0})[-most:]


def checkpoint_hashes(hashes: Sequence[int], most: int, matched_blocks: int = 0) -> list[int]:
    """The hashes to keep of a prompt: at its checkpoints, and at what an earlier prompt shared with it."""
    lengths = checkpoints(len(hashes), most)
    if 0 < matched_blocks <= len(hashes) and matched_blocks not in lengths:
        lengths = [matched_blocks, *(lengths if len(lengths) < most else lengths[1:])]
    return [hashes[length - 1] for length in lengths]


class Matched(NamedTuple):
    """How much a replica has of a prompt, in tokens, and when that was last used, in seconds."""

    tokens: int
    used: float


class PrefixIndex:
    """What the replicas of one model have cached, as far as can be known from outside. Times are seconds.

    Bounded: points that were not used for `seconds` are gone, and so are the longest unused beyond `most`.
    """

    def __init__(self, settings: PrefixSettings, block_size: int) -> None:
        self.settings, self.block_size = settings, block_size
        self._points: dict[str, OrderedDict[int, float]] = {}  # replica -> hash -> last use, the oldest first
        self._replicas: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._points.values()))

    def add(self, now: float, replica: str, hashes: Iterable[int]) -> None:
        """A prompt with these `checkpoint_hashes` was given to a replica."""
        points = self._points.setdefault(replica, OrderedDict())
        for hash_ in hashes:
            points[hash_] = now
            points.move_to_end(hash_)
            self._replicas.setdefault(hash_, set()).add(replica)
        self._drop_oldest(replica, now - self.settings.seconds)
        while len(self) > self.settings.most:
            self._drop(max(self._points, key=lambda id: len(self._points[id])))

    def match(self, now: float, hashes: Sequence[int]) -> dict[str, Matched]:
        """The longest match of each replica that has one, for a prompt with these `block_hashes`."""
        oldest = now - self.settings.seconds
        found: dict[str, Matched] = {}
        for blocks in range(len(hashes), 0, -1):
            for replica in self._replicas.get(hashes[blocks - 1], ()):
                used = self._points[replica][hashes[blocks - 1]]
                if replica not in found and used >= oldest:
                    found[replica] = Matched(blocks * self.block_size, used)
            if len(found) == len(self._points):
                break
        return found

    def correct(self, now: float, replica: str, hashes: Sequence[int], expected: Matched | None, cached: int) -> None:
        """The engine says how many tokens it had cached of a prompt, of which `expected` was thought.

        More: a point is added there, where other prompts will meet it. Less: the engine has evicted what was used
        last at that time, and so probably all that it used before.
        """
        blocks = min(cached // self.block_size, len(hashes))
        had = expected.tokens // self.block_size if expected else 0
        if blocks > had:
            self.add(now, replica, [hashes[blocks - 1]])
        elif expected and blocks < had:
            self._drop_oldest(replica, expected.used)

    def forget(self, replica: str) -> None:
        """It has restarted, or is gone."""
        while self._points.get(replica):
            self._drop(replica)
        self._points.pop(replica, None)

    def _drop_oldest(self, replica: str, until: float) -> None:
        points = self._points.get(replica)
        while points and next(iter(points.values())) <= until:
            self._drop(replica)

    def _drop(self, replica: str) -> None:
        hash_, _ = self._points[replica].popitem(last=False)
        holders = self._replicas[hash_]
        holders.discard(replica)
        if not holders:
            del self._replicas[hash_]
