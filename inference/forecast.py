"""How long a request of a model would wait for its first token, from what the runners say once a second.

Fail-open: without a fresh word from a runner nothing is predicted, and nobody is turned away for it.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from inference.redis import keys, rules
from inference.scheduling.capacity import slots
from inference.scheduling.prediction import Ahead, Learned, Prediction, lane_share
from inference.scheduling.routing import Demand, Load, assess
from inference.scheduling.settings import LANES

FRESH_SECONDS = 5  # an older word says nothing
REREAD_SECONDS = 0.5
MOST_MODELS = 200

log = structlog.get_logger(__name__)
_read: "OrderedDict[str, Seen]" = OrderedDict()


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A replica that may be used: counters and figures as in `scheduling.routing.Load`."""

    id: str
    qpf: float
    kv: float
    n: float
    capkv: float
    capn: int
    peak_rate: float
    health: float


class Outlook(msgspec.Struct, frozen=True):
    """What a runner saw. By lane: `waiting` requests, `uncached` tokens of one, what `Predictor` has learned.

    `ends`: requests that end in a second.
    """

    waiting: dict[str, int]
    uncached: dict[str, float]
    learned: dict[str, Learned]
    places: list[Place]
    ends: float

    def knows(self, lane: str) -> bool:
        """Whether enough was observed to decide by."""
        return self.learned.get(lane, Learned()).trusted

    def prediction(self, lane: str, input: int, output: int, ahead: int | None = None) -> Prediction:
        """Seconds until the first token of a prompt of `input` tokens, of which nothing is cached.

        `ahead`: requests of its lane that are served before it; None: all that wait.
        """
        before = self.waiting.get(lane, 0) if ahead is None else ahead
        tokens = self.uncached.get(lane, 0.0) * before
        learned = self.learned.get(lane, Learned())
        return learned.predict(rules.settings().prediction, self._ahead(lane, input, output, before, int(tokens)))

    def has_place(self, lane: str, input: int, output: int, taken: int) -> bool:
        """Whether such a request would start at once, if `taken` others of its lane go first."""
        if self.waiting.get(lane):
            return False
        settings = rules.settings()
        demand = Demand(lane, input, output)
        open_ = [place for place, load in zip(self.places, self._loads(), strict=True)
                 if not assess(settings, demand, load, 0).refusal]  # fmt: skip
        return sum(max(0, slots(settings.lane(lane), place.capn) - int(place.n)) for place in open_) > taken

    def _ahead(self, lane: str, input: int, output: int, requests: int, tokens: int) -> Ahead:
        settings = rules.settings()
        lane_settings = settings.lane(lane)
        demand = Demand(lane, input, output)
        share = lane_share(settings, lane, frozenset(name for name in LANES if self.waiting.get(name)))
        free = sum(max(0, slots(lane_settings, place.capn) - int(place.n)) for place in self.places)
        return Ahead(
            requests=requests,
            uncached=tokens,
            slots=free,
            release_rate=self.ends * share,
            prefill_rate=sum(place.peak_rate * place.health for place in self.places) * share,
            best_prefill=min((assess(settings, demand, load, 0).prefill for load in self._loads()), default=0.0),
        )

    def _loads(self) -> Sequence[Load]:
        return [Load(*msgspec.structs.astuple(place)) for place in self.places]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Outlook).decode


async def publish(client: Redis, prefix: str, outlook: Outlook) -> None:
    """Raises RedisError."""
    await client.set(keys.forecast(prefix), _encode(outlook), ex=FRESH_SECONDS)


@dataclass
class Seen:
    """An outlook as it was read, and how many this process has let in since, by lane."""

    at: float
    packed: bytes | None
    outlook: Outlook | None
    let_in: Counter[str] = field(default_factory=Counter)


async def see(client: Redis, model: str) -> Seen:
    """The last word of a runner, without an outlook when there is none or Redis is away."""
    now, read = time.monotonic(), _read.get(model)
    if read is not None and now - read.at < REREAD_SECONDS:
        return read
    try:
        packed = await client.get(keys.forecast(keys.scheduler(model)))
    except (RedisError, OSError) as error:
        log.warning("nothing is predicted", error=str(error))
        return Seen(now, None, None)
    if read is not None and packed == read.packed:
        read.at = now
        return read
    seen = _read[model] = Seen(now, packed, _decode(packed) if packed else None)
    if len(_read) > MOST_MODELS:
        _read.popitem(last=False)
    return seen


async def outlook(client: Redis, model: str) -> Outlook | None:
    """Only what the runner saw."""
    return (await see(client, model)).outlook


def forget() -> None:
    """What was read lately: for tests."""
    _read.clear()
