"""Which replica takes a request: the lowest score in seconds, but a request stays where its prefix is cached.

Times are seconds of a monotonic clock. What is believed of a replica (its rates, its KV capacity, its failures) is in
`health`, and may be imported from here.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from inference.scheduling.answers import Head, Refusal
from inference.scheduling.capacity import refusal
from inference.scheduling.health import (
    Breaker,
    DecodeRate,
    KvCapacity,
    PeakRate,
    ejected,
    first_token_timeout,
    may_take,
    sequence_limit,
    silence_timeout,
    time_limits,
    updated_health,
    usable,
)
from inference.scheduling.settings import SchedulerSettings

__all__ = [
    "Breaker",
    "Candidate",
    "Choice",
    "DecodeRate",
    "Demand",
    "KvCapacity",
    "Load",
    "PeakRate",
    "Why",
    "assess",
    "choose",
    "ejected",
    "first_token_timeout",
    "may_take",
    "sequence_limit",
    "silence_timeout",
    "time_limits",
    "updated_health",
    "usable",
    "with_best_match_first",
]

HOPING = 0.8  # of the least that a requeued request may wait again: for a replica that has not failed it, at most


@dataclass(frozen=True, slots=True)
class Load:
    """One replica as a runner sees it. `qpf`, `kv` and `n` are the ledger's (see `book.Counters`)."""

    id: str
    qpf: float
    kv: float
    n: float
    capkv: float
    capn: int
    peak_rate: float  # tokens/s
    health: float = 1.0
    usage: float = 0.0  # of the engine's KV cache, as last scraped, 0 to 1
    metrics_age: float = 0.0  # seconds since a scrape
    preempted_age: float = float("inf")  # seconds since the engine preempted
    usable: bool = True  # ready, not draining, not ejected
    failures: int = 0  # of requests, in a row


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for. `waited` in seconds; `avoid` replicas that have failed it."""

    lane: str
    input: int
    expected_output: int
    waited: float = 0.0
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica with the terms of its score, in seconds, for the decision record.

    `refusal`: why the request cannot start there now ("" it can): replica (not usable), slots, kv, gate. `suspect`: its
    metrics are old, or it would be ejected if that were not so of others already.
    """

    id: str
    match: int
    uncached: int
    prefill: float  # t_r
    kv: float  # k_r
    score: float
    refusal: str = ""
    suspect: bool = False


class Why(StrEnum):
    BEST = "best"
    STICKY = "sticky"
    LEFT = "left"  # not where its prefix is, for load or since that one takes nothing now
    EXPLORED = "explored"
    NONE = "none"  # no replica can take it now


@dataclass(frozen=True, slots=True)
class Choice:
    """The replica that was chosen ("" none), the tokens it has to prefill, why, and all that were looked at."""

    id: str
    uncached: int
    why: Why
    candidates: tuple[Candidate, ...]


def assess(settings: SchedulerSettings, demand: Demand, load: Load, match: int) -> Candidate:
    """One replica's score for a request of which it has `match` tokens cached.

    Stale metrics raise what the ledger says in the score, but close no gate.
    """
    rules = settings.score
    match = min(max(match, 0), demand.input)
    uncached = max(1, demand.input - match)  # the engine computes the last token in any case
    need = demand.input + demand.expected_output
    stale = settings.replica.stale_factor if load.metrics_age > settings.replica.stale_seconds else 1.0
    rate = load.peak_rate * load.health
    prefill = (load.qpf * stale + uncached) / rate if rate > 0 else 0.0
    kv = (load.kv * stale + need) / load.capkv if load.capkv > 0 else 0.0
    taken = load.n * stale / load.capn if load.capn > 0 else 1.0
    score = prefill + rules.kv_weight * max(0.0, kv - rules.kv_from) / (1 - rules.kv_from) + rules.slots_weight * taken
    refused = refusal(settings.lane(demand.lane), load, uncached, need, match) if load.usable else Refusal.REPLICA
    failing = load.failures >= settings.ejection.failures
    suspect = failing or load.metrics_age > settings.replica.suspect_seconds
    return Candidate(load.id, match, uncached, prefill, kv, score, refused.value, suspect)


def choose(
    settings: SchedulerSettings,
    demand: Demand,
    loads: Sequence[Load],
    matches: Mapping[str, int],
    rng: random.Random,
) -> Choice:
    """The replica with the lowest score among those that can start it now, but it stays with a matching one.

    `matches`: cached tokens by replica id, absent is 0. One that is suspect is taken when no other can start it. One
    that has failed the request is taken when there is no other; what has failed waits for one that is merely full.
    """
    candidates = tuple(assess(settings, demand, load, matches.get(load.id, 0)) for load in loads)
    others = [candidate for candidate in candidates if candidate.id not in demand.avoid]
    healthy = [each for each in others if each.refusal != Refusal.REPLICA.value and not each.suspect]
    free = [each for each in (healthy if demand.avoid and healthy else candidates) if not each.refusal]
    if not free:
        return Choice("", 0, Why.NONE, candidates)
    unblamed = [candidate for candidate in free if candidate.id not in demand.avoid] or free
    pool = [candidate for candidate in unblamed if not candidate.suspect] or unblamed
    chosen, why = _stay_or_leave(settings, demand, pool, {load.id: load for load in loads}, rng)
    if why is Why.BEST and any(_matches(settings, demand, candidate) for candidate in candidates):
        why = Why.LEFT
    return Choice(chosen.id, chosen.uncached, why, candidates)


def _stay_or_leave(
    settings: SchedulerSettings,
    demand: Demand,
    pool: Sequence[Candidate],
    loads: Mapping[str, Load],
    rng: random.Random,
) -> tuple[Candidate, Why]:
    best = _lowest(pool)
    homes = [candidate for candidate in pool if _matches(settings, demand, candidate)]
    if not homes:
        return best, Why.BEST
    home = _lowest(homes)
    others = [candidate for candidate in pool if candidate is not home]
    if not others:
        return home, Why.STICKY
    in_time = [other for other in others if _in_time(settings, demand, other)]
    if in_time and not _in_time(settings, demand, home):
        return _lowest(in_time), Why.LEFT
    room = [other for other in pool if not _crowded(settings, loads[other.id], loads)]
    if room and _crowded(settings, loads[home.id], loads):
        return _lowest(room), Why.LEFT
    relaxed = [other for other in others if not _saturated(settings, loads[other.id])]
    if relaxed and _saturated(settings, loads[home.id]):
        return _lowest(relaxed), Why.LEFT
    if home.score - best.score > _patience(settings, demand):
        return best, Why.LEFT
    if rng.random() < settings.score.exploration:
        return _lowest(others), Why.EXPLORED
    return home, Why.STICKY


def _lowest(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda candidate: (candidate.score, candidate.id))


def _matches(settings: SchedulerSettings, demand: Demand, candidate: Candidate) -> bool:
    rules = settings.score
    long_enough = min(rules.sticky_tokens, rules.sticky_share * demand.input)
    return candidate.match > 0 and candidate.match >= long_enough


def _patience(settings: SchedulerSettings, demand: Demand) -> float:
    """Seconds by which the score of a request's home may trail the best."""
    objective = settings.lane(demand.lane).objective_seconds
    most = settings.score.leave_seconds
    return most if objective is None else min(most, settings.score.leave_share * objective)


def _in_time(settings: SchedulerSettings, demand: Demand, candidate: Candidate) -> bool:
    objective = settings.lane(demand.lane).objective_seconds
    return objective is None or demand.waited + candidate.prefill <= objective


def _crowded(settings: SchedulerSettings, load: Load, loads: Mapping[str, Load]) -> bool:
    """Whether it has more than its part of all requests, with one to spare: a few say nothing."""
    mean = (sum(each.n for each in loads.values()) + 1) / len(loads)
    return load.n > settings.score.leave_load * mean + 1


def _saturated(settings: SchedulerSettings, load: Load) -> bool:
    rules = settings.score
    return load.usage > rules.leave_kv_usage or load.preempted_age < rules.leave_preempted_seconds


def with_best_match_first(heads: Sequence[Head], matches: Mapping[str, float], late: float = -math.inf) -> list[Head]:
    """The heads of `peek` in the order in which to try them: among those of a lane whose turn it is, the best cached
    share first, but none ahead of one before it that has a rank before `late`.

    `matches`: by request id, the largest share of its input that any replica has cached, absent is 0. Without a bound
    whoever has nothing cached would wait until all who have are a quantum ahead.
    """
    lanes = list(dict.fromkeys(head.lane for head in heads))
    ranked, group = [], 0
    for head in heads:
        is_late = head.turn and head.rank < late
        group += is_late
        by_match = -matches.get(head.id, 0.0) if head.turn else 0.0
        ranked.append(((lanes.index(head.lane), not head.turn, group if head.turn else 0, by_match), head))
        group += is_late
    return [head for _, head in sorted(ranked, key=lambda each: each[0])]
