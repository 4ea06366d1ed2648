"""One scenario under one policy: what is run, and what comes of it."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.simulator.cluster import Cluster, Policy
from benchmarks.simulator.metrics import Observed, Window, observe, summary, window
from benchmarks.simulator.policies import LEAST, OURS, POLICIES, ROUND_ROBIN
from benchmarks.simulator.profiles import GPU, Profile
from benchmarks.simulator.workloads import Job

QUICK_POLICIES = (OURS, LEAST, ROUND_ROBIN)


@dataclass(frozen=True)
class Scale:
    """Seconds of a run. What comes before `warm` is not counted, nor what comes in the last `tail`."""

    seconds: float
    warm: float
    tail: float = 0.0
    drain: float = 0.0  # more seconds without arrivals, so that what is under way can end

    def at(self, share: float) -> float:
        """A moment as a share of the counted time."""
        return self.warm + share * (self.seconds - self.tail - self.warm)


@dataclass(frozen=True)
class Run:
    """A run that is over."""

    cluster: Cluster
    policy: Policy
    observed: Observed
    window: Window
    scale: Scale


Figures = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`jobs` are drawn once and given to each policy. `faults` arranges what happens; `extra` adds figures of its own.

    `own` are policies that only this scenario has.
    """

    name: str
    title: str
    says: str
    jobs: Callable[[Scale], list[Job]]
    policies: tuple[str, ...]
    full: Scale = Scale(180, 30, 10)
    quick: Scale = Scale(36, 8, 3)
    replicas: int = 4
    profile: Profile = GPU
    faults: Callable[[Run], None] | None = None
    extra: Callable[[Run], Figures] | None = None
    own: Mapping[str, Callable[[], Policy]] = field(default_factory=dict)


def run(scenario: Scenario, name: str, jobs: list[Job], scale: Scale) -> tuple[Run, Figures]:
    """Simulates; the same arguments give the same figures."""
    policy = {**POLICIES, **scenario.own}[name]()
    cluster = Cluster(scenario.profile, scenario.replicas, policy, jobs)
    made = Run(cluster, policy, observe(cluster), window(cluster, scale.warm, scale.seconds - scale.tail), scale)
    if scenario.faults is not None:
        scenario.faults(made)
    cluster.run(scale.seconds + scale.drain)
    figures = summary(cluster, made.window)
    figures["extra"] = scenario.extra(made) if scenario.extra is not None else {}
    return made, figures


def shortened(scenario: Scenario) -> Scenario:
    """With its quick scale, and only the product and two others."""
    compared = [name for name in scenario.policies if name in QUICK_POLICIES]
    return dataclasses.replace(scenario, full=scenario.quick, policies=tuple(compared))
