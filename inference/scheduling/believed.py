"""What is believed of one replica by what was seen of it: how fast it is, what it may be promised, if it fails."""

import math
from dataclasses import dataclass

from inference.scheduling.answers import Counters
from inference.scheduling.health import Breaker, DecodeRate, KvCapacity, PeakRate, sequence_limit, updated_health
from inference.scheduling.routing import Load
from inference.scheduling.settings import SchedulerSettings

MOST_READING = 0.1  # of the time between two scrapes: else it is reading that decides how fast streams are


@dataclass(frozen=True, slots=True)
class Scrape:
    """An engine's metrics. `usage` of its KV memory, 0 to 1; `kv_tokens` that it holds, 0 is not known.

    Since it started: `preemptions`, `generated` tokens, `prefilled` tokens, which are those of prompts that were not
    cached.
    """

    running: int
    waiting: int
    usage: float
    kv_tokens: int
    preemptions: int
    generated: int
    prefilled: int


class Believed:
    """Times are seconds of a monotonic clock; rates are tokens/s. `peak_rate` is 0 until a first figure is known."""

    def __init__(self, settings: SchedulerSettings, id: str, slots: int, peak_rate: float) -> None:
        self.id, self.slots = id, slots
        self.breaker = Breaker()
        self.health = 1.0
        self.decode = DecodeRate()
        self._peak = PeakRate(settings.replica, peak_rate)
        self._kv: KvCapacity | None = None
        self._last: Scrape | None = None
        self._scraped_at = self._preempted_at = -math.inf
        self._shared = 0  # KV tokens that prompts have in common, as of the last scrape

    @property
    def peak_rate(self) -> float:
        """Of prefill."""
        return self._peak.value

    @peak_rate.setter
    def peak_rate(self, value: float) -> None:
        self._peak.value = value

    @property
    def capkv(self) -> int:
        """KV tokens that are promised of it, none of which two requests share; 0 is not known."""
        return int(self._kv.promised) if self._kv else 0

    def promised(self, settings: SchedulerSettings, now: float) -> int:
        """`capkv` for a ledger that counts for each request what some have in common; 0 is not known.

        What old figures say of that is not relied on.
        """
        fresh = now - self._scraped_at <= settings.replica.stale_seconds
        return self.capkv + self._shared if fresh and self.capkv else self.capkv

    def capn(self, settings: SchedulerSettings) -> int:
        """Requests at a time."""
        return sequence_limit(settings, self.slots, self.decode)

    def load(self, counters: Counters, now: float, *, usable: bool) -> Load:
        """For choosing: the ledger's counters and limits, by which `commit` judges too, with what is believed."""
        return Load(
            id=self.id,
            qpf=counters.qpf,
            kv=counters.kv,
            n=counters.n,
            capkv=counters.capkv,
            capn=counters.capn,
            peak_rate=counters.peak_rate,
            health=self.health,
            usage=self._last.usage if self._last else 0.0,
            metrics_age=now - self._scraped_at,
            preempted_age=now - self._preempted_at,
            usable=usable and counters.open,
            failures=self.breaker.failures,
        )

    def prefilled(self, settings: SchedulerSettings, tokens: int, seconds: float) -> None:
        """A first token came so long after its commit to a replica that had no other prefill queued.

        With others ahead the tokens are not known: part of theirs may have been done by then.
        """
        peak = self.peak_rate
        rate = self._peak.observe(tokens, seconds)
        if rate is not None:
            self.health = updated_health(settings.replica, self.health, rate, peak)

    def scraped(self, settings: SchedulerSettings, seen: Scrape, now: float, read: int = 0) -> None:
        """Call it about once a second. `read`: of the ledger (see `Counters`), at about that moment."""
        self._peak.settings = settings.replica  # may have been changed
        before, seconds = self._last, now - self._scraped_at
        preempted = before is not None and seen.preemptions > before.preemptions
        if preempted:
            self._preempted_at = now
        if self._kv is None or self._kv.physical != seen.kv_tokens:
            self._kv = KvCapacity.start(settings.replica, seen.kv_tokens, now) if seen.kv_tokens else None
        else:
            self._kv = self._kv.adapted(settings.replica, now, usage=seen.usage, preempted=preempted)
        if before is not None and seconds > 0:
            self._see_decoding(before, seen, seconds)
        self._shared = max(0, read - int(seen.usage * seen.kv_tokens))
        self._last, self._scraped_at = seen, now

    def _see_decoding(self, before: Scrape, seen: Scrape, seconds: float) -> None:
        """The rate of each stream in the time in which no prompt was read.

        Prompts stall the streams of a replica however few these are, so what they take is no reason to have fewer.
        """
        streams = (before.running + seen.running) / 2
        about_equal = abs(seen.running - before.running) <= max(1, streams / 5)
        reading = (seen.prefilled - before.prefilled) / self.peak_rate if self.peak_rate > 0 else 0.0
        if not streams or not about_equal or seen.waiting or not 0 <= reading <= MOST_READING * seconds:
            return
        generated = seen.generated - before.generated
        self.decode.observe(streams, generated / streams / (seconds - reading))

    def came_back(self, now: float) -> None:
        """It was down and is ready: its counts begin anew."""
        self.breaker = self.breaker.came_back(now)
        self._last, self._kv, self._scraped_at, self._shared = None, None, -math.inf, 0
