"""How many requests a second of some workload an engine can take, so that loads can be given as shares of it."""

from collections.abc import Sequence as SequenceOf
from functools import cache

from benchmarks.simulator.engine import Sequence
from benchmarks.simulator.profiles import Profile
from benchmarks.simulator.replay import replay
from benchmarks.simulator.workloads import Job, Shape, Source, draw

REQUESTS = 1500


@cache
def capacity(profile: Profile, shape: Shape) -> float:
    """Requests per second of one saturated engine that gets requests of this shape, none of which share anything."""
    even = Shape(shape.name, shape.input, shape.output)
    return capacity_of(profile, draw([Source(even, "paid", 100.0)], REQUESTS / 100.0, seed=99))


def capacity_of(profile: Profile, jobs: SequenceOf[Job]) -> float:
    """The same for given requests, between the first and the last fifth of their ends."""
    arrivals = [(0.0, Sequence(job.input, job.output, job.hashes(profile.block))) for job in jobs]
    ends = sorted(each.last for each in replay(profile, arrivals))
    low, high = len(ends) // 5, len(ends) * 4 // 5
    return (high - low) / (ends[high] - ends[low])
