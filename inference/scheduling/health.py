"""What is believed of a replica: how fast it is, how much it holds, whether it fails. Times are seconds, monotonic."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from inference.scheduling.settings import EjectionSettings, ReplicaSettings, SchedulerSettings


def quantile(values: list[float], share: float) -> float:
    """The smallest of `values` that `share` of them do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("There are no values.")
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """The KV tokens that are promised of a replica's `physical` ones; `changed` is when, in seconds."""

    physical: int
    promised: float
    changed: float

    @classmethod
    def start(cls, settings: ReplicaSettings, physical: int, now: float) -> "KvCapacity":
        """The highest share, until the engine complains."""
        return cls(physical, settings.kv_high * physical, now - settings.kv_seconds)

    def adapted(self, settings: ReplicaSettings, now: float, *, usage: float, preempted: bool) -> "KvCapacity":
        """After a scrape: less when the engine preempted or is nearly full, else slowly more."""
        if now - self.changed < settings.kv_seconds:
            return self
        full = preempted or usage > settings.kv_usage
        wanted = self.promised * (settings.kv_down if full else settings.kv_up)
        within = min(max(wanted, settings.kv_low * self.physical), settings.kv_high * self.physical)
        return KvCapacity(self.physical, within, now)


class PeakRate:
    """A replica's prefill rate in tokens/s: a first figure, then the p90 of what was observed."""

    def __init__(self, settings: ReplicaSettings, first: float) -> None:
        self.settings, self.value = settings, first
        self._samples: deque[float] = deque(maxlen=settings.rate_samples)

    def observe(self, uncached: int, seconds: float) -> float | None:
        """`uncached` tokens (with those queued ahead) were prefilled in `seconds`.

        Returns the rate, for `updated_health`, or None for a prompt too small to count.
        """
        if uncached < self.settings.rate_min_tokens or seconds <= 0:
            return None
        self._samples.append(uncached / seconds)
        if len(self._samples) >= self.settings.rate_min_samples:
            self.value = quantile(list(self._samples), self.settings.rate_quantile)
        return uncached / seconds


def updated_health(settings: ReplicaSettings, health: float, observed_rate: float, peak_rate: float) -> float:
    """The moving average of observed / peak, within its bounds. Feed it what `PeakRate.observe` returns."""
    if peak_rate <= 0:
        return health
    moved = health + settings.health_alpha * (observed_rate / peak_rate - health)
    return min(max(moved, settings.health_low), settings.health_high)


CLEARLY = 1.2  # what an engine must do alone for the least decode rate to be asked of it
FAR = 2.0  # times the most streams seen: a line through a few says nothing of more


class DecodeRate:
    """How the time of a decode step grows with the number of streams: a line below what was observed lately.

    A prompt that is read meanwhile only ever makes streams slower, so an observation that is slower than the line
    weighs little.
    """

    FADING = 0.995  # of an observation's weight, at each later one
    SLOWER = 0.05  # the weight of one that is slower than was expected

    def __init__(self) -> None:
        self.most = 0.0  # streams seen, lately
        self._weight = self._n = self._step = self._nn = self._n_step = 0.0
        self._slope = 0.0  # the last one that could be told

    def observe(self, n: float, rate: float) -> None:
        """Each of `n` streams got `rate` tokens/s. Call it about once a second."""
        if n <= 0 or rate <= 0:
            return
        self.most = max(n, self.most * self.FADING)
        step = 1 / rate
        expected = self.predicted(n)
        weight = 1.0 if expected is None or rate >= expected else self.SLOWER
        added = (weight * each for each in (1.0, n, step, n * n, n * step))
        kept = self.FADING**weight
        sums = (self._weight, self._n, self._step, self._nn, self._n_step)
        self._weight, self._n, self._step, self._nn, self._n_step = (
            total * kept + new for total, new in zip(sums, added, strict=True)
        )
        mean_n, mean_step = self._n / self._weight, self._step / self._weight
        variance = self._nn / self._weight - mean_n**2
        if variance >= 0.25:
            self._slope = max(0.0, (self._n_step / self._weight - mean_n * mean_step) / variance)

    def predicted(self, n: float) -> float | None:
        """tokens/s of each of `n` streams, None while nothing is known."""
        if not self._weight:
            return None
        step = self._step / self._weight + self._slope * (n - self._n / self._weight)
        return 1 / step if step > 0 else math.inf


def sequence_limit(settings: SchedulerSettings, capn: int, decode: DecodeRate) -> int:
    """How many requests a replica may have so that each stream keeps the least decode rate.

    All `capn` where that is off, where the engine hardly keeps it with one stream either (at the edge, noise would
    decide), and where it would be lost only with far more streams than were seen.
    """
    least = settings.score.min_decode_rate
    alone = decode.predicted(1)
    if not least or alone is None or alone < least * CLEARLY:
        return capn
    if (decode.predicted(math.ceil(decode.most * FAR)) or 0.0) >= least:
        return capn
    low, high = 1, max(1, capn)
    while low < high:
        middle = (low + high + 1) // 2
        kept = (decode.predicted(middle) or 0.0) >= least
        low, high = (middle, high) if kept else (low, middle - 1)
    return min(low, capn)


@dataclass(frozen=True, slots=True)
class Breaker:
    """A replica's failures of requests (a 4xx is none; nor is a failed probe), and whether it is left out for them.

    `until` is when its ejection ends; `trial` says that it is half open then: few requests until one succeeds. What an
    attempt says depends on when it began. Streams may go on for minutes on a replica that answers nothing new, and when
    one dies, all that it had fails at once, and perhaps late.
    """

    failures: int = 0
    ejections: int = 0
    until: float = 0.0
    trial: bool = False
    since: float = -math.inf  # it was ejected or came back: attempts that began before say nothing of it any more
    failed_at: float = -math.inf  # the latest of the failures

    def succeeded(self, began: float) -> "Breaker":
        """An attempt that began then has ended well. Only one that began after the latest failure ends the row."""
        return Breaker(since=self.since) if self._tells(began) else self

    def answers(self, began: float) -> "Breaker":
        """An attempt that began then gets its tokens: more are let in, but what failed is forgiven at its end only."""
        return replace(self, trial=False) if self.trial and self._tells(began) else self

    def failed(self, began: float, now: float) -> "Breaker":
        return replace(self, failures=self.failures + 1, failed_at=now) if began > self.since else self

    def came_back(self, now: float) -> "Breaker":
        """It was down and is ready again: tried at once, with few requests if it failed any.

        What failed as it went down does not count any more. How often it was ejected still does, until one succeeds.
        """
        return Breaker(ejections=self.ejections, trial=self.trial or self.failures > 0, since=now)

    def _tells(self, began: float) -> bool:
        """Whether an attempt that began then shows what the replica does with new ones."""
        return began > max(self.since, self.failed_at)

    def bad(self, settings: EjectionSettings, now: float) -> bool:
        return self.failures >= settings.failures or self.until > now

    def ejected(self, settings: EjectionSettings, now: float) -> "Breaker":
        """Left out for longer each time. One more failure afterwards is enough for the next time."""
        ejections = self.ejections + 1
        seconds = min(settings.seconds * ejections, settings.most_seconds)
        return Breaker(settings.failures - 1, ejections, now + seconds, trial=True, since=now)


def ejected(settings: SchedulerSettings, pool: Mapping[str, Breaker], now: float) -> dict[str, Breaker]:
    """The pool after those that fail were left out: never more than a third (but one), none if most look bad."""
    rules = settings.ejection
    if _mostly_bad(settings, pool, now) and len(pool) > 1:
        return dict(pool)
    room = max(1, int(len(pool) * rules.most_share + 1e-9)) - sum(breaker.until > now for breaker in pool.values())
    failing = [id for id, breaker in pool.items() if breaker.failures >= rules.failures and breaker.until <= now]
    worst_first = sorted(failing, key=lambda id: (-pool[id].failures, id))
    return {**pool, **{id: pool[id].ejected(rules, now) for id in worst_first[: max(0, room)]}}


def _mostly_bad(settings: SchedulerSettings, pool: Mapping[str, Breaker], now: float) -> bool:
    bad = sum(breaker.bad(settings.ejection, now) for breaker in pool.values())
    return bad > settings.ejection.off_share * len(pool)


def may_take(settings: SchedulerSettings, breaker: Breaker, n: int, now: float) -> bool:
    """Whether a replica takes another request, as far as its failures go.

    `n`: the requests on it that began after `breaker.since`, so that old streams do not stand in for a try.
    """
    if breaker.until > now:
        return False
    return not breaker.trial or n < settings.ejection.half_open_requests


def usable(settings: SchedulerSettings, pool: Mapping[str, tuple[Breaker, int]], now: float) -> set[str]:
    """Which of the ready replicas take another request. With each, the requests on it as `may_take` counts them.

    All of them, if none would or more than half look bad: then the fault is elsewhere.
    """
    taking = {id for id, (breaker, n) in pool.items() if may_take(settings, breaker, n, now)}
    mostly_bad = _mostly_bad(settings, {id: breaker for id, (breaker, _) in pool.items()}, now)
    return set(pool) if mostly_bad or not taking else taking


def first_token_timeout(settings: SchedulerSettings, predicted: float | None) -> float:
    """Seconds without a first token after which an attempt has failed; `predicted` is None until it can be trusted."""
    rules = settings.ejection
    return rules.first_token_seconds if predicted is None else max(1.0, rules.first_token_factor * predicted)


def silence_timeout(settings: SchedulerSettings, max_batched_tokens: int, peak_rate: float) -> float:
    """Seconds between two tokens after which an attempt has failed: others' prefill steps may stall a stream."""
    step = max_batched_tokens / peak_rate if peak_rate > 0 else 0.0
    return max(settings.ejection.silence_seconds, settings.ejection.silence_factor * step)


LONGEST_STEP = 4096  # tokens that an engine reads at once at most: it does not tell


def time_limits(settings: SchedulerSettings, predicted: float, peak_rate: float) -> tuple[float, float]:
    """Seconds without a first, and without a next token after which an attempt has failed.

    `predicted`: seconds that the engine needs for the prompts queued there and for this one. The first limit is never
    shorter than the next one's: an engine that reads another prompt meanwhile is not at fault. While its `peak_rate` is
    not known (0), nothing is predicted.
    """
    if peak_rate <= 0:
        longest = first_token_timeout(settings, None)
        return longest, longest
    silence = silence_timeout(settings, LONGEST_STEP, peak_rate)
    return max(silence, first_token_timeout(settings, predicted)), silence
