"""What a runner sees of one model once a second, and what can be said by it of a request that comes now."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from inference.scheduling.capacity import slots
from inference.scheduling.prediction import Ahead, Learned, Prediction, lane_share
from inference.scheduling.routing import Demand, Load, assess
from inference.scheduling.settings import LANES, SchedulerSettings

AT_ONCE = 0.1  # of the lane's objective: prompts queued on an engine that somebody may stand behind


class Counted(NamedTuple):
    """What is on a replica now, as in `answers.Counters`."""

    qpf: float
    kv: float
    n: float


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A replica that may be used: counters and figures as in `routing.Load`."""

    id: str
    qpf: float
    kv: float
    n: float
    capkv: float
    capn: int
    peak_rate: float
    health: float

    @classmethod
    def of(cls, load: Load) -> "Place":
        return cls(load.id, load.qpf, load.kv, load.n, load.capkv, load.capn, load.peak_rate, load.health)

    def holding(self, held: Counted) -> "Place":
        return msgspec.structs.replace(self, qpf=held.qpf, kv=held.kv, n=held.n)

    @property
    def seconds_queued(self) -> float:
        """Until what is queued to be read has been read."""
        return self.qpf / (self.peak_rate * self.health)

    @property
    def load(self) -> Load:
        return Load(self.id, self.qpf, self.kv, self.n, self.capkv, self.capn, self.peak_rate, self.health)


class View(msgspec.Struct, frozen=True):
    """By lane: `waiting` and `running` requests, `uncached` tokens of one, what `Predictor` has learned.

    `ends`: requests that end in a second.
    """

    waiting: dict[str, int]
    uncached: dict[str, float]
    learned: dict[str, Learned]
    places: list[Place]
    ends: float
    running: dict[str, int] = {}

    def knows(self, lane: str) -> bool:
        """Whether enough was observed to decide by."""
        return self.learned.get(lane, Learned()).trusted

    def predict(
        self, settings: SchedulerSettings, lane: str, input: int, output: int, ahead: float | None = None
    ) -> Prediction:
        """Seconds until the first token of a prompt of `input` tokens, of which nothing is cached.

        `ahead`: requests of its lane that are served before it; None: all that wait.
        """
        before = self.waiting.get(lane, 0) if ahead is None else ahead
        learned = self.learned.get(lane, Learned())
        return learned.predict(settings.prediction, self.ahead(settings, Demand(lane, input, output), before))

    def with_counters(
        self, waiting: Mapping[str, int], running: Mapping[str, int], counters: Mapping[str, Counted]
    ) -> Self:
        """The same with newer counts: what changes many times a second. What is not given stays."""
        places = [place.holding(counters[place.id]) if place.id in counters else place for place in self.places]
        return msgspec.structs.replace(
            self, waiting={**self.waiting, **waiting}, running={**self.running, **running}, places=places
        )

    def in_its_share(self, settings: SchedulerSettings, lane: str) -> bool:
        """Whether lesser lanes have more of what runs than their weights give them beside this one and those above it.

        Then it is not this lane that is too much for the pool, and the lesser ones have to make room first.
        """
        weights = {name: settings.lane(name).weight for name in LANES if self.running.get(name) or name == lane}
        own = {name for name, weight in weights.items() if weight >= weights[lane]}
        share = sum(weights[name] for name in own) / sum(weights.values())
        return sum(self.running.get(name, 0) for name in own) < share * sum(self.running.values())

    def in_its_part(self, lane: str, own: int, tenants: int) -> bool:
        """Whether a tenant with `own` requests in the lane, waiting ones too, has no more than its part of what runs.

        `tenants`: how many have requests there, itself included. Then others are too much for the lane, not this one.
        """
        return own * tenants <= self.running.get(lane, 0)

    def takes(self, settings: SchedulerSettings, lane: str, input: int, output: int, taken: int) -> bool:
        """Whether an engine would read such a request as good as at once, if `taken` others of its lane go first."""
        if self.waiting.get(lane):
            return False
        demand, most = Demand(lane, input, output), AT_ONCE * (settings.lane(lane).objective_seconds or 0.0)
        soon = [
            place
            for place in self.places
            if place.seconds_queued <= most and not assess(settings, demand, place.load, 0).refusal
        ]
        return self._free(settings, lane, soon) > taken

    def ahead(self, settings: SchedulerSettings, demand: Demand, requests: float) -> Ahead:
        """What stands between a request and its first token."""
        share = lane_share(settings, demand.lane, frozenset(name for name in LANES if self.waiting.get(name)))
        prefills = [assess(settings, demand, place.load, 0).prefill for place in self.places]
        return Ahead(
            requests=requests,
            uncached=int(self.uncached.get(demand.lane, 0.0) * requests),
            slots=self._free(settings, demand.lane, self.places),
            release_rate=self.ends * share,
            prefill_rate=sum(place.peak_rate * place.health for place in self.places) * share,
            best_prefill=min(prefills, default=0.0),
        )

    def _free(self, settings: SchedulerSettings, lane: str, places: Sequence[Place]) -> int:
        return sum(max(0, slots(settings.lane(lane), place.capn) - int(place.n)) for place in places)
