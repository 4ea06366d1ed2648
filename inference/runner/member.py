"""One replica as a runner knows it: how to reach it, how it is, and what is believed of it."""

import time

from inference.models import Replica
from inference.redis import rules
from inference.replicas import ReplicaState
from inference.scheduling.answers import Counters
from inference.scheduling.believed import Believed, Scrape
from inference.scheduling.health import Breaker
from inference.scheduling.routing import Load
from inference.vllm import Engine, EngineStats

PROOF_TOKENS = 32  # after so many a replica that is tried may have more requests: a whole reply may take minutes


class Member:
    """Times are seconds of the monotonic clock. `peak_rate` is 0 until a first figure is known."""

    def __init__(self, row: Replica, engine: Engine, slots: int, peak_rate: float) -> None:
        self.row, self.engine = row, engine
        self.id = str(row.id)
        self.served_name = ""
        self.state = ReplicaState.LOADING
        self.loading_since = time.monotonic()
        self.late = 0  # looks in a row to which it said nothing in time
        self.measured = True  # its last figures came, and could be right
        self.block_size = 0  # tokens of a block of its prefix cache; 0 is not known
        self._under_way: list[float] = []  # when each attempt on it began
        self._believed = Believed(rules.settings(), self.id, slots, peak_rate)

    # What it can

    @property
    def peak_rate(self) -> float:
        """Tokens/s of prefill."""
        return self._believed.peak_rate

    @peak_rate.setter
    def peak_rate(self, value: float) -> None:
        self._believed.peak_rate = value

    @property
    def health(self) -> float:
        """Observed over peak rate, lately."""
        return self._believed.health

    @property
    def capn(self) -> int:
        """Requests at a time."""
        return self._believed.capn(rules.settings())

    @property
    def capkv(self) -> int:
        """KV tokens that are promised of it; 0 is not known."""
        return self._believed.promised(rules.settings(), time.monotonic())

    def load(self, counters: Counters, *, usable: bool) -> Load:
        """For choosing; `counters` are those of the ledger."""
        return self._believed.load(counters, time.monotonic(), usable=usable)

    # What is seen of it

    @property
    def breaker(self) -> Breaker:
        return self._believed.breaker

    @breaker.setter
    def breaker(self, value: Breaker) -> None:
        self._believed.breaker = value

    def begins(self) -> float:
        """An attempt is sent to it: when it began, for what is told of it later."""
        began = time.monotonic()
        self._under_way.append(began)
        return began

    def over(self, began: float) -> None:
        """An attempt has ended, however."""
        self._under_way.remove(began)

    @property
    def trying(self) -> int:
        """Attempts under way that show what it does now (see `Breaker`). Those of other runners are not known."""
        return sum(began > self.breaker.since for began in self._under_way)

    def succeeded(self, began: float) -> None:
        self.breaker = self.breaker.succeeded(began)

    def answers(self, began: float, tokens: int) -> None:
        """An attempt has got so many tokens."""
        if tokens >= PROOF_TOKENS:
            self.breaker = self.breaker.answers(began)

    def failed(self, began: float) -> None:
        """A fault of the replica: not a 4xx, which is the request's own."""
        self.breaker = self.breaker.failed(began, time.monotonic())

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A first token came after so long, on a replica that had no other prefill queued."""
        self._believed.prefilled(rules.settings(), tokens, seconds)

    def scraped(self, stats: EngineStats, read: int = 0) -> None:
        """`read`: tokens of prompts that have their first token there, as the ledger counts."""
        self.block_size, self.measured = stats.block_size, True
        seen = Scrape(
            running=stats.running,
            waiting=stats.waiting,
            usage=stats.kv_usage,
            kv_tokens=stats.kv_blocks * stats.block_size,
            preemptions=stats.preemptions,
            generated=stats.generated,
            prefilled=stats.prefilled,
        )
        self._believed.scraped(rules.settings(), seen, time.monotonic(), read)

    def came_back(self) -> None:
        """It was down and is ready: whatever it counted or cached before is gone."""
        self.state, self.block_size, self.measured = ReplicaState.READY, 0, True
        self._believed.came_back(time.monotonic())

    def went_down(self) -> None:
        """Out of rotation at once; an engine that we start ourselves is being restarted."""
        self.state = ReplicaState.LOADING if self.row.managed else ReplicaState.DOWN
        self.loading_since = time.monotonic()
