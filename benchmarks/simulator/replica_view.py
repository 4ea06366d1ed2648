"""What the runners believe of one simulated replica: scrapes and observations, kept by the product's own rules."""

import math

from benchmarks.simulator.cluster import Replica
from inference.scheduling.book import Counters
from inference.scheduling.routing import (
    Breaker,
    DecodeRate,
    KvCapacity,
    Load,
    PeakRate,
    sequence_limit,
    updated_health,
)
from inference.scheduling.settings import SchedulerSettings


class ReplicaView:
    """`scrape` once a second; `prefilled` for every first token."""

    def __init__(self, settings: SchedulerSettings, replica: Replica, now: float) -> None:
        profile = replica.engine.profile
        self.settings, self.replica = settings, replica
        self.kv = KvCapacity.start(settings.replica, profile.kv_tokens, now)
        self.rate = PeakRate(settings.replica, profile.prefill_rate)
        self.decode = DecodeRate()
        self.health = 1.0
        self.breaker = Breaker()
        self.usage = 0.0
        self.scraped = now
        self.preempted_at = -math.inf
        self.capn = profile.max_num_seqs
        self.ready = True
        self._engine = replica.engine
        self._preemptions = 0
        self._steps = 0
        self._looked = now

    def scrape(self, now: float) -> None:
        """Metrics (unless they are frozen), the decode rate of the streams, and so what may be promised."""
        engine = self.replica.engine
        if engine is not self._engine:  # another one in its place
            self._engine, self._preemptions, self._steps = engine, 0, 0
        if not self.replica.frozen:
            preempted = engine.preemptions > self._preemptions
            self._preemptions = engine.preemptions
            self.preempted_at = now if preempted else self.preempted_at
            self.usage, self.scraped = engine.pool.usage(), now
            self.kv = self.kv.adapted(self.settings.replica, now, usage=self.usage, preempted=preempted)
        passed = now - self._looked
        if passed > 0:
            self.decode.observe(len(engine.decoding), (engine.steps - self._steps) / passed)
        self._steps, self._looked = engine.steps, now
        self.capn = sequence_limit(self.settings, engine.profile.max_num_seqs, self.decode)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A first token came `seconds` after its commit to a replica that had no other prefill queued.

        With others ahead the tokens are not known: part of theirs may have been done by then.
        """
        rate = self.rate.observe(tokens, seconds)
        if rate is not None:
            self.health = updated_health(self.settings.replica, self.health, rate, self.rate.value)

    def load(self, counters: Counters, now: float, usable: bool) -> Load:
        """For choosing: the ledger's counters and limits, by which `commit` will judge too, with what is believed."""
        return Load(
            id=self.replica.id,
            qpf=counters.qpf,
            kv=counters.kv,
            n=counters.n,
            capkv=counters.capkv,
            capn=counters.capn,
            peak_rate=counters.peak_rate,
            health=self.health,
            usage=self.usage,
            metrics_age=now - self.scraped,
            preempted_age=now - self.preempted_at,
            usable=usable,
        )
