"""How long a request of a model would wait for its first token, from what the runners say once a second.

Fail-open: without a fresh word from a runner nothing is predicted, and nobody is turned away for it.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence

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
_read: "OrderedDict[str, tuple[float, Outlook | None]]" = OrderedDict()


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
        waiting = self.waiting.get(lane, 0)
        before = waiting if ahead is None else min(ahead, waiting)
        tokens = self.uncached.get(lane, 0.0) * before
        learned = self.learned.get(lane, Learned())
        return learned.predict(rules.settings().prediction, self._ahead(lane, input, output, before, int(tokens)))

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


async def outlook(client: Redis, model: str) -> Outlook | None:
    """The last word of a runner, None when there is none or Redis is away."""
    read = _read.get(model)
    if read is not None and time.monotonic() - read[0] < REREAD_SECONDS:
        return read[1]
    try:
        packed = await client.get(keys.forecast(keys.scheduler(model)))
    except (RedisError, OSError) as error:
        log.warning("nothing is predicted", error=str(error))
        return None
    found = _decode(packed) if packed else None
    _read[model] = (time.monotonic(), found)
    if len(_read) > MOST_MODELS:
        _read.popitem(last=False)
    return found


def forget() -> None:
    """What was read lately: for tests."""
    _read.clear()
