"""How long until the first token: prediction, its correction by what happened."""

import math
from collections import deque
from dataclasses import dataclass, field

from inference.scheduling.health import quantile
from inference.scheduling.settings import PredictionSettings, SchedulerSettings

ORDER_ALPHA = 0.01  # what an observation of `Order` counts
ORDER_TERMS = 5
LEAST_QUEUE = 2
LEAST_REST = 0.01


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands between a request and its first token, as seen in one moment.

    `requests` and `uncached` (tokens) are served before it in its lane. `slots` are free now, `release_rate` is how
    many a second become free for this lane, `prefill_rate` tokens/s that the whole pool gives this lane, and
    `best_prefill` the seconds of the best replica's queue and of its own prompt (least `routing.Candidate.prefill`).
    """

    requests: float
    uncached: int
    slots: int
    release_rate: float
    prefill_rate: float
    best_prefill: float


class Order:
    """Where in a lane's queue those that come are placed. Keep one for each model and lane.

    `mean`: of the part of the queue that was to be served before each; 1 where all go to the end, as those of one
    organization do, and a half where many organizations bring one now and then.
    """

    def __init__(self) -> None:
        self.mean = 1.0

    def came(self, before: float, waiting: int) -> None:
        """`before` of the `waiting` requests were to be served before one that came."""
        if waiting >= LEAST_QUEUE:
            self.mean += ORDER_ALPHA * (min(before / waiting, 1.0) - self.mean)

    def served_before(self, before: float, waiting: int) -> float:
        """Requests that are served before one that has `before` of `waiting` ahead: some of them have yet to come.

        Of those that come, the part x^a goes ahead of who stands at the part x of the queue, with a = mean / (1 - mean)
        (a beta distribution with that mean). Where as many come as are served, x falls by (1 - x^a) / waiting with each
        that is served. The integral over that is a series; its first terms are enough, as no crowd stays for ever.
        """
        if before <= 0 or waiting < LEAST_QUEUE:
            return before
        x, a = min(before / waiting, 1.0), self.mean / max(1 - self.mean, LEAST_REST)
        terms = (x ** (a * k + 1) / (a * k + 1) for k in range(ORDER_TERMS))
        return waiting * float(sum(terms))


def lane_share(settings: SchedulerSettings, lane: str, backlogged: frozenset[str]) -> float:
    """The part of the pool that `lane` gets while the `backlogged` lanes (itself included or not) want theirs."""
    weights = {name: settings.lane(name).weight for name in backlogged | {lane}}
    return weights[lane] / sum(weights.values())


def raw_seconds(ahead: Ahead) -> float:
    """Seconds to the first token before any correction; math.inf when nothing is ever released.

    Who is ahead needs slots and prefill at the same time, so the longer of the two waits counts, and then its own
    prompt.
    """
    without_slot = max(0, ahead.requests + 1 - ahead.slots)
    return max(_time(without_slot, ahead.release_rate), _time(ahead.uncached, ahead.prefill_rate)) + ahead.best_prefill


def _time(amount: float, rate: float) -> float:
    if amount <= 0:
        return 0.0
    return amount / rate if rate > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds to first token: the middle, and what nine in ten keep. `raw` is to be given back to `observe`."""

    raw: float
    expected: float
    p90: float
    trusted: bool  # enough samples to decide by


@dataclass(frozen=True, slots=True)
class Learned:
    """What a `Predictor` knows, of waits of each size (`size_of`) that it has seen enough of.

    `ratios`: what half of them did not exceed, and what nine in ten did not: actual seconds / raw ones.
    """

    ratios: dict[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        return bool(self.ratios)

    def predict(self, settings: PredictionSettings, ahead: Ahead) -> Prediction:
        raw = raw_seconds(ahead)
        if not math.isfinite(raw):
            return Prediction(raw, raw, raw, trusted=False)
        seconds = max(raw, settings.shortest_seconds)
        middle, most = self._ratios_of(seconds)
        return Prediction(raw, seconds * middle, seconds * most, self.trusted)

    def _ratios_of(self, seconds: float) -> tuple[float, float]:
        """Between the middles of two sizes by the logarithm, beyond all as that which is nearest."""
        if not self.ratios:
            return 1.0, 1.0
        place = math.log2(seconds) - 0.5
        low = max((size for size in self.ratios if size <= place), default=min(self.ratios))
        high = min((size for size in self.ratios if size >= place), default=max(self.ratios))
        part = (place - low) / (high - low) if high > low else 0.0
        (middle, most), (next_middle, next_most) = self.ratios[low], self.ratios[high]
        return _between(middle, next_middle, part), _between(most, next_most, part)


def size_of(seconds: float) -> int:
    """Waits of one size differ by less than twice: 0 is 1 to 2 seconds, 1 is 2 to 4, -1 half a second to one."""
    return math.floor(math.log2(seconds))


def _between(low: float, high: float, part: float) -> float:
    return float(low ** (1 - part) * high**part)


@dataclass(slots=True)
class _Seen:
    """Of one size: the latest ratios, and when the last one came."""

    ratios: deque[float]
    at: float


class Predictor:
    """Learns from what happened. Keep one for each model and lane.

    Each size of wait by itself. A short one is mostly what does not depend on those ahead: the step that an engine is
    just in, reading, sending. In a long one others come who are served before. One rule for all sizes that learns from
    short waits believes in them when a crowd comes, lets in too many, learns from their waits, and lets in too few.
    """

    def __init__(self, settings: PredictionSettings) -> None:
        self.settings = settings
        self._seen: dict[int, _Seen] = {}

    @property
    def learned(self) -> Learned:
        enough = {
            size: seen.ratios for size, seen in self._seen.items() if len(seen.ratios) >= self.settings.min_samples
        }
        return Learned({size: self._quantiles(list(ratios)) for size, ratios in enough.items()})

    def predict(self, ahead: Ahead) -> Prediction:
        return self.learned.predict(self.settings, ahead)

    def observe(self, predicted: Prediction, actual: float, now: float) -> None:
        """`actual` seconds from acceptance to the first token, for one that was neither cancelled nor preempted.

        `now`: seconds, of any clock. Sizes that did not come for long are forgotten: who is turned away for what was
        once seen of them teaches nothing.
        """
        if not math.isfinite(predicted.raw) or actual <= 0:
            return
        seconds = max(predicted.raw, self.settings.shortest_seconds)
        seen = self._seen.setdefault(size_of(seconds), _Seen(deque(), now))
        seen.at = now
        seen.ratios.append(actual / seconds)
        while len(seen.ratios) > self.settings.samples:
            seen.ratios.popleft()
        before = now - self.settings.remember_seconds
        self._seen = {size: each for size, each in self._seen.items() if each.at >= before}

    def _quantiles(self, ratios: list[float]) -> tuple[float, float]:
        return quantile(ratios, 0.5), quantile(ratios, self.settings.quantile)
