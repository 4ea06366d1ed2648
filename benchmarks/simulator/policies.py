"""Everything that is compared, by the name it has in the tables."""

import dataclasses
from collections.abc import Callable

from benchmarks.simulator.baselines import BoundedHashing, LeastLoaded, RadixTree, RoundRobin
from benchmarks.simulator.cluster import Policy
from benchmarks.simulator.scheduler import Scheduler
from benchmarks.simulator.tickets import Options
from inference.scheduling.settings import LANES, SchedulerSettings

OURS = "chatsite"
NO_FLOOR = "chatsite, no decode floor"
NO_GATE = "chatsite, no gate"
NO_AFFINITY = "chatsite, no affinity"
CONTROL = "chatsite, every fifth refusal let in"
FEW_LET_IN = "chatsite, every fiftieth refusal let in"
NO_SHEDDING = "chatsite, no shedding"
ROUND_ROBIN = "first come, round robin"
LEAST = "least loaded"
HASHING = "bounded hashing"
RADIX = "radix tree"
NO_GATE_SECONDS = 3600.0


def settings(*, floor: bool = True, gate: bool = True) -> SchedulerSettings:
    """The defaults, without the least decode rate or without the lanes' prefill gates where that is asked for."""
    made = SchedulerSettings()
    if not floor:
        made = dataclasses.replace(made, score=dataclasses.replace(made.score, min_decode_rate=0.0))
    if not gate:
        open_lanes = {lane: dataclasses.replace(made.lane(lane), gate_seconds=NO_GATE_SECONDS) for lane in LANES}
        made = dataclasses.replace(made, lanes=dataclasses.replace(made.lanes, **open_lanes))
    return made


def scheduler(*, floor: bool = True, gate: bool = True, **options: object) -> Callable[[], Policy]:
    """Makes the product's policy anew for each run. `options`: of `scheduler.Options`."""
    return lambda: Scheduler(settings(floor=floor, gate=gate), Options(**options))  # type: ignore[arg-type]


POLICIES: dict[str, Callable[[], Policy]] = {
    OURS: scheduler(),
    NO_FLOOR: scheduler(floor=False),
    NO_GATE: scheduler(gate=False),
    NO_AFFINITY: scheduler(affinity=False),
    CONTROL: scheduler(control=1 / 5),
    FEW_LET_IN: scheduler(control=1 / 50),  # beside a flood a fifth would be as much as is let in
    NO_SHEDDING: scheduler(shedding=False),
    ROUND_ROBIN: RoundRobin,
    LEAST: LeastLoaded,
    HASHING: BoundedHashing,
    RADIX: RadixTree,
}
