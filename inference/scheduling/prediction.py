"""How long until the first token: prediction, its correction by what happened."""

import math
from collections import deque
from dataclasses import dataclass

from inference.scheduling.health import quantile
from inference.scheduling.settings import PredictionSettings, SchedulerSettings

LEAST_VARIATION = 0.1  # standard deviation of raw seconds over their mean, for a line to be told from a factor


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
    """What a `Predictor` knows: `constant` seconds and `correction` times the raw ones are expected.

    `spread` is the p90 of actual / expected.
    """

    correction: float = 1.0
    spread: float = 1.0
    trusted: bool = False
    constant: float = 0.0

    def predict(self, settings: PredictionSettings, ahead: Ahead) -> Prediction:
        raw = raw_seconds(ahead)
        expected = self.constant + raw * self.correction
        p90 = max(expected, settings.shortest_seconds) * self.spread
        return Prediction(raw, expected, p90, self.trusted and math.isfinite(raw))


class Predictor:
    """Learns from what happened. Keep one for each model and lane.

    A line through what was observed lately, since part of the time to a first token does not depend on what is ahead:
    the step that an engine is just in, and what reading and sending cost. The line is a mean, which a few long waits
    raise; so what is expected is the part of it that half of the requests kept.
    """

    def __init__(self, settings: PredictionSettings) -> None:
        self.settings = settings
        self.samples = 0
        self._line = _Line()
        self._ratios: deque[float] = deque(maxlen=settings.samples)  # actual / what the line says
        self._middle = self._p90 = 1.0

    @property
    def learned(self) -> Learned:
        constant, factor = self._line.fitted(self.settings)
        trusted = self.samples >= self.settings.min_samples
        return Learned(factor * self._middle, self._p90 / self._middle, trusted, constant * self._middle)

    def predict(self, ahead: Ahead) -> Prediction:
        return self.learned.predict(self.settings, ahead)

    def observe(self, predicted: Prediction, actual: float) -> None:
        """`actual` seconds from acceptance to the first token, for one that was neither cancelled nor preempted."""
        if not math.isfinite(predicted.raw) or actual < 0:
            return
        rules = self.settings
        self.samples += 1
        constant, factor = self._line.fitted(rules)
        self._ratios.append(actual / max(constant + factor * predicted.raw, rules.shortest_seconds))
        if self.samples >= rules.min_samples:
            self._middle = min(max(quantile(list(self._ratios), 0.5), rules.correction_low / factor), 1.0)
        self._p90 = max(quantile(list(self._ratios), rules.quantile), self._middle)
        weight = 1 / max(predicted.expected, rules.shortest_seconds)
        self._line.observe(predicted.raw, actual, weight, rules.correction_alpha)


class _Line:
    """Weighted least squares of actual by raw seconds, in which older observations fade."""

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # of weight, and with it of x, y, x * x, x * y

    def observe(self, x: float, y: float, weight: float, fading: float) -> None:
        w, wx, wy, wxx, wxy = (each * (1 - fading) for each in self._sums)
        self._sums = (w + weight, wx + weight * x, wy + weight * y, wxx + weight * x * x, wxy + weight * x * y)

    def fitted(self, settings: PredictionSettings) -> tuple[float, float]:
        """Constant and factor, within their bounds. Where raw seconds hardly vary it is all in the factor."""
        weight, x, y, xx, xy = self._sums
        if not weight:
            return 0.0, 1.0
        mean_x, mean_y = max(x / weight, 1e-9), y / weight
        variance = xx / weight - mean_x**2
        low, high = settings.correction_low, settings.correction_high
        if variance > (LEAST_VARIATION * mean_x) ** 2:
            factor = min(max((xy / weight - mean_x * mean_y) / variance, low), high)
            constant = min(mean_y - factor * mean_x, high * max(mean_x, settings.shortest_seconds))
            if constant >= 0:
                return constant, factor
        return 0.0, min(max(mean_y / mean_x, low), high)
