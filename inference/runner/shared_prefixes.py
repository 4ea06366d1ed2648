"""Which replica has which prompt's beginning in its cache: one index in each runner, fed by all of them.

What a runner places is announced in a capped stream that the others read. Nothing depends on it but speed: what is lost
or late costs some prefill, and the engines' own counts of cached tokens correct what is believed.
"""

import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from uuid import UUID

from redis.asyncio import Redis

from chatsite.redis import ask, streams_of
from inference.prompt_store import StoredPrompt
from inference.redis import keys, rules
from inference.scheduling.prefixes import Matched, PrefixIndex, block_hashes, checkpoint_hashes, salt

MOST_KEPT = 20_000  # placements in the stream
MOST_READ = 2_000  # in one go
MOST_REMEMBERED = 2_000  # hashes of prompts that wait


def _packed(hashes: Sequence[int]) -> bytes:
    return array("Q", hashes).tobytes()


class SharedPrefixes:
    """Of one model. Matches nothing until the engines' block size is known. Times are of the wall clock, in seconds."""

    def __init__(self, client: Redis, prefix: str, model: str, runner: UUID) -> None:
        self._client, self._key = client, keys.prefixes(prefix)
        self._model, self._runner = model, runner.bytes
        self._index: PrefixIndex | None = None
        self._read = "0"
        self._pending: list[tuple[str, list[int]]] = []
        self._hashes: OrderedDict[str, list[int]] = OrderedDict()  # by request

    def __len__(self) -> int:
        """Points that are known, of all replicas."""
        return len(self._index) if self._index is not None else 0

    def use_block_size(self, tokens: int) -> None:
        """What was known for another size is of no use."""
        if self._index is not None:
            self._index.settings = rules.settings().prefix  # may have been changed
        if tokens and (self._index is None or self._index.block_size != tokens):
            self._index = PrefixIndex(rules.settings().prefix, tokens)
            self._read = "0"
            self._hashes.clear()

    def hashes(self, id: str, prompt: StoredPrompt | None) -> Sequence[int]:
        """Of each whole block of a request's prompt."""
        if self._index is None or prompt is None:
            return ()
        if id not in self._hashes:
            ids = memoryview(prompt.token_ids).cast("I")
            self._hashes[id] = block_hashes(ids, self._index.block_size, salt(self._model, prompt.cache_salt))
            if len(self._hashes) > MOST_REMEMBERED:
                self._hashes.popitem(last=False)
        return self._hashes[id]

    def match(self, hashes: Sequence[int]) -> dict[str, Matched]:
        """By replica, the longest that it should have."""
        return self._index.match(time.time(), hashes) if self._index and hashes else {}

    def placed(self, replica: str, hashes: Sequence[int], matched: int) -> None:
        """A prompt went to a replica; `matched` tokens of it were there already."""
        if self._index is None or not hashes:
            return
        kept = checkpoint_hashes(hashes, rules.settings().prefix.checkpoints, matched // self._index.block_size)
        self._index.add(time.time(), replica, kept)
        self._pending.append((replica, kept))

    def cached(self, replica: str, hashes: Sequence[int], expected: Matched | None, tokens: int) -> None:
        """The engine has told how much of a prompt it had."""
        if self._index is not None and hashes:
            self._index.correct(time.time(), replica, hashes, expected, tokens)

    def forget(self, replica: str) -> None:
        """It has restarted."""
        if self._index is not None:
            self._index.forget(replica)

    async def exchange(self) -> None:
        """Announces what was placed here, and takes up what the others have. Raises RedisError."""
        if self._index is None:
            return
        pending, self._pending = self._pending, []
        told = [
            ("XADD", self._key, "MAXLEN", "~", MOST_KEPT, "*", "r", replica, "h", _packed(hashes), "by", self._runner)
            for replica, hashes in pending
        ]
        *_, found = await ask(self._client, *told, ("XREAD", "COUNT", MOST_READ, "STREAMS", self._key, self._read))
        for _, entries in streams_of(found):
            for id, fields in entries:
                self._take_up(id.decode(), dict(zip(fields[::2], fields[1::2], strict=True)))

    def _take_up(self, id: str, entry: dict[bytes, bytes]) -> None:
        self._read = id
        if self._index is not None and entry[b"by"] != self._runner:
            placed_at = int(id.partition("-")[0]) / 1000
            self._index.add(placed_at, entry[b"r"].decode(), memoryview(entry[b"h"]).cast("Q"))
