"""One simulated replica, what the runners believe of it, and the scrapes from which they do."""

from benchmarks.simulator.cluster import Replica
from inference.scheduling.believed import Believed, Scrape
from inference.scheduling.settings import SchedulerSettings


class ReplicaView:
    """`scrape` once a second. `ready` is what probes say."""

    def __init__(self, settings: SchedulerSettings, replica: Replica, now: float) -> None:
        profile = replica.engine.profile
        self.replica, self.ready = replica, True
        self.believed = Believed(settings, replica.id, profile.max_num_seqs, profile.prefill_rate)
        self._engine = replica.engine
        self.scrape(settings, now, 0)

    def scrape(self, settings: SchedulerSettings, now: float, read: int) -> None:
        """Metrics, unless they are frozen. `read`: of the ledger."""
        if self.replica.frozen:
            return
        engine = self.replica.engine
        if engine is not self._engine:  # another one in its place
            self._engine = engine
            self.believed.came_back(now)
        seen = Scrape(
            running=engine.running,
            waiting=len(engine.waiting),
            usage=engine.pool.usage(),
            kv_tokens=engine.profile.kv_tokens,
            preemptions=engine.preemptions,
            generated=engine.decoded,
            prefilled=engine.prefilled,
        )
        self.believed.scraped(settings, seen, now, read)
