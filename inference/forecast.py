"""How long a request of a model would wait for its first token, from what the runners say once a second.

Fail-open: without a fresh word from a runner nothing is predicted, and nobody is turned away for it.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chatsite.redis import ask
from inference.arriving import Arriving
from inference.redis import keys, rules
from inference.redis.scheduler import Scheduler
from inference.scheduling.outlook import Counted, Place, View
from inference.scheduling.prediction import Order, Prediction
from inference.scheduling.settings import LANES

__all__ = [
    "Outlook",
    "Place",
    "Seen",
    "before_next",
    "by_lane",
    "forget",
    "of_waiting",
    "publish",
    "see",
    "under_way",
    "withdraw",
]

FRESH_SECONDS = 5  # an older word says nothing
REREAD_SECONDS = 0.05
MOST_MODELS = 200

log = structlog.get_logger(__name__)
_read: "OrderedDict[str, Seen]" = OrderedDict()


class Outlook(View, frozen=True):
    """By the rules in force."""

    def prediction(self, lane: str, input: int, output: int, ahead: float | None = None) -> Prediction:
        """Seconds until the first token of a prompt of `input` tokens, of which nothing is cached.

        `ahead`: requests of its lane that are served before it; None: all that wait.
        """
        return self.predict(rules.settings(), lane, input, output, ahead)

    def has_place(self, lane: str, input: int, output: int, taken: int) -> bool:
        """Whether an engine would read such a request at once, if `taken` others of its lane go first."""
        return self.takes(rules.settings(), lane, input, output, taken)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Outlook).decode


async def publish(client: Redis, prefix: str, outlook: Outlook) -> None:
    """Raises RedisError."""
    await client.set(keys.forecast(prefix), _encode(outlook), ex=FRESH_SECONDS)


@dataclass
class Seen:
    """An outlook as it was read, whom its counts do not have, and where those are placed that come."""

    at: float
    packed: bytes | None
    outlook: Outlook | None
    arriving: Arriving = field(default_factory=Arriving)
    orders: defaultdict[str, Order] = field(default_factory=lambda: defaultdict(Order))  # by lane

    def waiting(self, lane: str) -> int:
        """Requests of the lane that wait, or are about to."""
        counted = self.outlook.waiting.get(lane, 0) if self.outlook else 0
        return counted + self.arriving.of_lane[lane]


async def see(client: Redis, model: str, *, within: float = REREAD_SECONDS) -> Seen:
    """The last word of a runner with counts that are `within` seconds old at most.

    Without an outlook when there is none or Redis is away.
    """
    now, read = time.monotonic(), _read.get(model)
    if read is not None and now - read.at < within:
        return read
    try:
        packed, outlook = await _read_again(client, keys.scheduler(model), read)
    except (RedisError, OSError) as error:
        log.warning("nothing is predicted", error=str(error))
        return Seen(now, None, None)
    seen = Seen(now, packed, outlook) if read is None else replace(read, at=now, packed=packed, outlook=outlook)
    seen.arriving.counted(now)
    _read[model] = seen
    if len(_read) > MOST_MODELS:
        _read.popitem(last=False)
    return seen


async def before_next(client: Redis, model: str, seen: Seen, lane: str, tenant: str) -> float:
    """Requests that would be served before one that the tenant brought now, of those that come later as well.

    Not all that wait: an organization that has little under way is served before one that has much.
    """
    waiting = seen.waiting(lane)
    if waiting == seen.arriving.of_lane[lane]:
        return waiting
    try:
        before = await Scheduler(client, model).before_next(lane, tenant, seen.arriving.of_tenant[lane, tenant])
    except (RedisError, OSError) as error:
        log.warning("nothing is known of those ahead", error=str(error))
        return waiting
    seen.orders[lane].came(before, waiting)
    return seen.orders[lane].served_before(min(before, waiting), waiting)


async def of_waiting(client: Redis, model: str, lane: str, input: int, ahead: int) -> Prediction | None:
    """For a request of `input` tokens that has `ahead` others before it; None where nothing is known."""
    seen = await see(client, model)
    if seen.outlook is None:
        return None
    before = seen.orders[lane].served_before(ahead, seen.waiting(lane))
    return seen.outlook.prediction(lane, input, 0, ahead=before)


async def under_way(client: Redis, model: str, lane: str, tenant: str) -> tuple[int, int]:
    """Requests of the tenant that wait or run, and how many tenants of the lane have some, it included.

    None and itself alone while Redis does not say.
    """
    key = keys.live(keys.scheduler(model), lane)
    try:
        own, tenants = await ask(client, ("HGET", key, tenant), ("HLEN", key))
    except (RedisError, OSError) as error:
        log.warning("nothing is known of what is under way", error=str(error))
        return 0, 1
    return int(own or 0), int(tenants) + (own is None)


async def _read_again(client: Redis, prefix: str, read: Seen | None) -> tuple[bytes | None, Outlook | None]:
    """Counters change many times in the second between two words of a runner, and most waits are shorter than that."""
    known = read.outlook.places if read is not None and read.outlook is not None else []
    packed, lengths, running, *counters = await ask(
        client,
        ("GET", keys.forecast(prefix)),
        ("HMGET", keys.lengths(prefix), *LANES),
        ("HMGET", keys.running(prefix), *LANES),
        *(("HMGET", keys.replica(prefix, place.id), "qpf", "kv", "n") for place in known),
    )
    if packed is None:
        return None, None
    held = {place.id: Counted(*map(float, found)) for place, found in zip(known, counters, strict=True) if all(found)}
    return packed, _decode(packed).with_counters(by_lane(lengths), by_lane(running), held)


def by_lane(counts: Sequence[bytes | None]) -> dict[str, int]:
    """Of `LANES` in their order, as Redis has them; what it does not have is left out."""
    return {lane: int(count) for lane, count in zip(LANES, counts, strict=True) if count is not None}


def forget() -> None:
    """What was read lately: for tests."""
    _read.clear()


async def withdraw(client: Redis, prefix: str) -> None:
    """No engine is ready any more: what was said holds no longer. Raises RedisError."""
    await client.delete(keys.forecast(prefix))
