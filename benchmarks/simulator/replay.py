"""A list of requests against one modelled engine, without any scheduler: what calibration compares, and capacity."""

import heapq
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from benchmarks.simulator.engine import Engine, Sequence
from benchmarks.simulator.profiles import Profile


@dataclass(frozen=True)
class Replayed:
    """Seconds from arrival to the first and the last token; prompt tokens from the cache."""

    first: float
    last: float
    cached: int


def replay(profile: Profile, arrivals: SequenceOf[tuple[float, Sequence]]) -> list[Replayed]:
    """Sends each sequence at its second straight to the engine; answers in the order of `arrivals`."""
    engine = Engine(profile)
    half = profile.request_seconds / 2
    coming = [(at + half, number) for number, (at, _) in enumerate(arrivals)]
    heapq.heapify(coming)
    numbers = {id(sequence): number for number, (_, sequence) in enumerate(arrivals)}
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    now = 0.0
    while coming or engine.running or engine.waiting:
        while coming and coming[0][0] <= now:
            engine.submit(arrivals[heapq.heappop(coming)[1]][1])
        seconds = engine.begin()
        if seconds is None:
            now = coming[0][0]
            continue
        now += seconds
        result = engine.end()
        for sequence in result.first:
            first[numbers[id(sequence)]] = now + half
        for sequence in result.finished:
            last[numbers[id(sequence)]] = now + half
    return [
        Replayed(first[number] - at, last[number] - at, sequence.cached)
        for number, (at, sequence) in enumerate(arrivals)
    ]
