"""One replica as a runner knows it: how to reach it, how fast it is, what it holds, whether it fails."""

import math
import time

from inference.models import Replica
from inference.redis import rules
from inference.replicas import ReplicaState
from inference.scheduling.answers import Counters
from inference.scheduling.health import Breaker, DecodeRate, KvCapacity, PeakRate, sequence_limit, updated_health
from inference.scheduling.routing import Load
from inference.vllm import Engine, EngineStats


class Member:
    """Times are seconds of the monotonic clock. `peak_rate` is 0 until a first figure is known."""

    def __init__(self, row: Replica, engine: Engine, slots: int, peak_rate: float) -> None:
        self.row, self.engine, self.slots = row, engine, slots
        self.id = str(row.id)
        self.served_name = ""
        self.state = ReplicaState.LOADING
        self.loading_since = time.monotonic()
        self.breaker = Breaker()
        self.health = 1.0
        self.decode = DecodeRate()
        self._peak = PeakRate(rules.settings().replica, peak_rate)
        self._kv: KvCapacity | None = None
        self._stats: EngineStats | None = None
        self._scraped_at = self._preempted_at = -math.inf

    # What it can

    @property
    def peak_rate(self) -> float:
        """Tokens/s of prefill."""
        return self._peak.value

    @peak_rate.setter
    def peak_rate(self, value: float) -> None:
        self._peak.value = value

    @property
    def capn(self) -> int:
        """Requests at a time."""
        return sequence_limit(rules.settings(), self.slots, self.decode)

    @property
    def capkv(self) -> int:
        """KV tokens that are promised of it; 0 is not known."""
        return int(self._kv.promised) if self._kv else 0

    @property
    def block_size(self) -> int:
        """Tokens of a block of its prefix cache; 0 is not known."""
        return self._stats.block_size if self._stats else 0

    def load(self, counters: Counters, *, usable: bool) -> Load:
        """For choosing; `counters` are those of the ledger."""
        now = time.monotonic()
        return Load(
            id=self.id,
            qpf=counters.qpf,
            kv=counters.kv,
            n=counters.n,
            capkv=counters.capkv,
            capn=counters.capn,
            peak_rate=counters.peak_rate,
            health=self.health,
            usage=self._stats.kv_usage if self._stats else 0.0,
            metrics_age=now - self._scraped_at,
            preempted_age=now - self._preempted_at,
            usable=usable and counters.open,
        )

    # What is seen of it

    def succeeded(self) -> None:
        self.breaker = self.breaker.succeeded()

    def failed(self) -> None:
        """A fault of the replica: not a 4xx, which is the request's own."""
        self.breaker = self.breaker.failed()

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A first token came after so long, on a replica that had no other prefill queued."""
        settings = rules.settings().replica
        peak = self.peak_rate
        rate = self._peak.observe(tokens, seconds)
        if rate is not None:
            self.health = updated_health(settings, self.health, rate, peak)

    def scraped(self, stats: EngineStats) -> None:
        now = time.monotonic()
        self._peak.settings = rules.settings().replica  # may have been changed
        before, seconds = self._stats, now - self._scraped_at
        preempted = before is not None and stats.preemptions > before.preemptions
        if preempted:
            self._preempted_at = now
        physical = stats.kv_blocks * stats.block_size
        if self._kv is None or self._kv.physical != physical:
            self._kv = KvCapacity.start(rules.settings().replica, physical, now) if physical else None
        elif physical:
            self._kv = self._kv.adapted(rules.settings().replica, now, usage=stats.kv_usage, preempted=preempted)
        if before is not None and stats.running and stats.running == before.running and not stats.waiting:
            generated = stats.generated - before.generated
            self.decode.observe(stats.running, generated / seconds / stats.running)
        self._stats, self._scraped_at = stats, now

    def came_back(self) -> None:
        """It was down and is ready: whatever it learned or cached before is gone."""
        self.state, self.breaker = ReplicaState.READY, self.breaker.came_back()
        self._stats, self._kv, self._scraped_at = None, None, -math.inf

    def went_down(self) -> None:
        """Out of rotation at once; an engine that we start ourselves is being restarted."""
        self.state = ReplicaState.LOADING if self.row.managed else ReplicaState.DOWN
        self.loading_since = time.monotonic()
