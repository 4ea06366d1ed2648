"""How long until the first token: prediction, its correction by what happened."""

import math
from collections import deque
from dataclasses import dataclass

from inference.scheduling.health import quantile
from inference.scheduling.settings import PredictionSettings, SchedulerSettings


@dataclass(frozen=True, slots=True)
class Ahead:
    """What stands between a request and its first token, as seen in one moment.

    `requests` and `uncached` (tokens) are served before it in its lane. `slots` are free now, `release_rate` is how
    many a second become free for this lane, `prefill_rate` tokens/s that the whole pool gives this lane, and
    `best_prefill` the seconds of the best replica's queue and of its own prompt (least `routing.Candidate.prefill`).
    """

    requests: int
    uncached: int
    slots: int
    release_rate: float
    prefill_rate: float
    best_prefill: float


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
    """What a `Predictor` knows. `spread` is the p90 of actual / expected."""

    correction: float = 1.0
    spread: float = 1.0
    trusted: bool = False

    def predict(self, settings: PredictionSettings, ahead: Ahead) -> Prediction:
        raw = raw_seconds(ahead)
        expected = raw * self.correction
        p90 = max(expected, settings.shortest_seconds) * self.spread
        return Prediction(raw, expected, p90, self.trusted and math.isfinite(raw))


class Predictor:
    """Learns from what happened. Keep one for each model and lane."""

    def __init__(self, settings: PredictionSettings) -> None:
        self.settings = settings
        self.correction = 1.0  # EWMA of actual / raw, within its bounds
        self.samples = 0
        self._spread: deque[float] = deque(maxlen=settings.samples)  # actual / expected
        self._p90 = 1.0

    @property
    def learned(self) -> Learned:
        return Learned(self.correction, self._p90, self.samples >= self.settings.min_samples)

    def predict(self, ahead: Ahead) -> Prediction:
        return self.learned.predict(self.settings, ahead)

    def observe(self, predicted: Prediction, actual: float) -> None:
        """`actual` seconds from acceptance to the first token, for one that was neither cancelled nor preempted."""
        if not math.isfinite(predicted.raw) or actual < 0:
            return
        rules = self.settings
        self.samples += 1
        self._spread.append(actual / max(predicted.expected, rules.shortest_seconds))
        self._p90 = quantile(list(self._spread), rules.quantile)
        ratio = actual / max(predicted.raw, rules.shortest_seconds)
        within = min(max(ratio, rules.correction_low), rules.correction_high)
        self.correction += rules.correction_alpha * (within - self.correction)
