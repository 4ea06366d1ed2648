"""Figures that only some scenarios have. Each takes a run and gives what its row of the report says beside the rest."""

import math
from collections.abc import Callable
from itertools import pairwise

from benchmarks.simulator import faults
from benchmarks.simulator.cluster import DONE, EXPIRED, FAILED, Request
from benchmarks.simulator.metrics import (
    balance,
    hit_rate,
    largest_gap,
    quantile,
    recovery,
    rounded,
    served,
    share,
    ttft,
)
from benchmarks.simulator.runs import Figures, Run
from benchmarks.simulator.scheduler import Scheduler
from benchmarks.simulator.tickets import Audit
from benchmarks.simulator.workloads import ideal_hits, pooled_hits
from inference.scheduling.settings import LANES, SchedulerSettings

SETTINGS = SchedulerSettings()


def audit(run: Run) -> Audit | None:
    return run.policy.audit if isinstance(run.policy, Scheduler) else None


def objective(lane: str) -> float:
    return SETTINGS.lane(lane).objective_seconds or math.inf


def steady(run: Run) -> Figures:
    """Prediction, idleness and balance."""
    figures: Figures = {"max_mean_in_flight": rounded(balance(run.observed, run.window.begin, run.window.end))}
    seen = audit(run)
    if seen is not None and seen.predictions:
        errors = [abs(expected - actual) / actual for expected, _, actual in seen.predictions]
        covered = sum(actual <= p90 for _, p90, actual in seen.predictions) / len(seen.predictions)
        figures |= {
            "prediction_error_p50": rounded(quantile(errors, 0.5)),
            "prediction_p90_covers": rounded(covered),
            "idle_beside_open": rounded(seen.idle / max(1, seen.looks), 4),
            "held_by_order": rounded(seen.held / max(1, seen.looks), 4),
            "held_by_own": rounded(seen.held_by_own / max(1, seen.looks), 4),
            "preemptions": seen.preemptions,
        }
        if run.policy.options.control:  # of all, scaled up from the sample
            in_vain = seen.shed_in_vain / max(1, seen.let_in) * seen.shed
            figures["wrongly_refused"] = rounded(in_vain / len(run.cluster.requests), 4)
    return figures


def series(run: Run, lane: str = "paid", width: float = 5.0) -> list[tuple[float, float | None]]:
    """The lane's TTFT p95 of those that come in each `width` seconds."""
    own = [each for each in run.cluster.requests if each.job.lane == lane]
    points = []
    for number in range(int(run.window.end / width)):
        inside = [each for each in own if number * width <= each.job.at < (number + 1) * width]
        points.append(((number + 0.5) * width, rounded(ttft(inside, 0.95))))
    return points


def flood(run: Run) -> Figures:
    """Paid before and during, and the share of all free requests that met their objective."""
    paid = [each for each in run.cluster.requests if each.job.lane == "paid"]
    before = [each for each in paid if 5.0 <= each.job.at < run.scale.warm]
    in_time = share(run.window.of("free"), lambda each: each.ttft <= objective("free"))
    return {
        **steady(run),
        "paid_p99_before": rounded(ttft(before, 0.99)),
        "free_in_time": rounded(in_time),
        "series": series(run),
    }


def affinity(run: Run) -> Figures:
    counted = sorted(run.window.requests, key=lambda request: request.first)
    everything = [request.job for request in run.cluster.requests if request.job.at < run.window.end]
    block = run.cluster.profile.block
    warm = [job for job in everything if job.at < run.window.begin]
    ideal = _ideal_after(warm, [request.job for request in run.window.requests], block)
    hits = hit_rate(counted)
    memory = len(run.cluster.replicas) * run.cluster.profile.blocks
    pooled = pooled_hits(everything, block, memory, run.window.begin)
    return {
        "ideal_hits": rounded(ideal),
        "of_ideal": rounded(hits / ideal) if ideal else None,
        "pool_as_one_cache_of_ideal": rounded(pooled / ideal) if ideal else None,
        "max_mean_in_flight": rounded(balance(run.observed, run.window.begin, run.window.end)),
    }


def _ideal_after(before: list, counted: list, block: int) -> float:
    """Of the counted jobs' tokens, those that an infinite cache would have, which has seen what came before."""
    total_before, total = sum(job.input for job in before), sum(job.input for job in [*before, *counted])
    hits = ideal_hits([*before, *counted], block) * total - ideal_hits(before, block) * total_before
    return hits / max(1, total - total_before)


def recovered(run: Run) -> Figures:
    after = run.scale.at(1 / 2)
    seconds = {
        f"{lane}_recovery_s": rounded(recovery(run.cluster, after, lane, objective(lane)), 1)
        for lane in ("enterprise", "paid", "free")
    }
    return {**seconds, "series": series(run)}


def ramped(run: Run) -> Figures:
    """Before the new replicas are there, and from 20 seconds after."""
    there = run.scale.at(0.15) + faults.COLD_SECONDS
    paid = run.window.of("paid")
    waiting = [each for each in paid if run.scale.at(0.15) <= each.job.at < there]
    later = [each for each in paid if each.job.at >= there + 20]
    return {"paid_p99_meanwhile": rounded(ttft(waiting, 0.99)), "paid_p99_after": rounded(ttft(later, 0.99))}


def reasoning(run: Run) -> Figures:
    chatters = [each for each in run.window.requests if each.job.tenant.startswith("chatter")]
    thinker = [each for each in run.window.requests if each.job.tenant.startswith("thinker")]
    return {
        "chatters_p50": rounded(ttft(chatters, 0.5)),
        "chatters_p99": rounded(ttft(chatters, 0.99)),
        "thinker_p50": rounded(ttft(thinker, 0.5)),
        "chatters_done": rounded(_done(chatters)),
    }


def on_off(run: Run) -> Figures:
    """Service of the ones that come and go over that of the others, in the seconds in which both send."""
    begin = math.ceil(run.window.begin / 40) * 40 + 20
    ours = theirs = 0.0
    while begin + 20 <= run.window.end:
        ours += sum(served(run.observed, f"sometimes-{number}", begin + 2, begin + 20) for number in range(3))
        theirs += sum(served(run.observed, f"always-{number}", begin + 2, begin + 20) for number in range(3))
        begin += 40
    return {"on_off_over_always": rounded(ours / theirs) if theirs else None}


def two(weights: tuple[float, float]) -> Callable[[Run], Figures]:
    """How two backlogged tenants were served."""

    def measured(run: Run) -> Figures:
        begin, end = run.window.begin, run.window.end
        first, second = served(run.observed, "one-0", begin, end), served(run.observed, "two-0", begin, end)
        return {
            "ratio": rounded(second / first, 4) if first else None,
            "largest_gap_wtok": round(largest_gap(run.observed, "one-0", "two-0", weights)),
        }

    return measured


def shares(run: Run) -> Figures:
    """Each lane's service as a part of its weight's share, and the longest that its head waited."""
    begin, end = run.window.begin, run.window.end
    got = {lane: served(run.observed, f"lane {lane}", begin, end) for lane in LANES}
    weights = {lane: SETTINGS.lane(lane).weight for lane in LANES}
    figures: Figures = {}
    for lane in LANES:
        fair = sum(got.values()) * weights[lane] / sum(weights.values())
        figures[f"{lane}_of_share"] = rounded(got[lane] / fair) if fair else None
    seen = audit(run)
    if seen is not None:
        figures["preemptions"] = seen.preemptions
        times = [at for at in seen.dispatches["free"] if begin <= at < end]
        figures["free_longest_pause_s"] = rounded(max((b - a for a, b in pairwise(times)), default=math.nan), 2)
    return figures


def faulted(run: Run) -> Figures:
    """Those that were under way or came within 15 s after the fault."""
    when = run.scale.at(faults.WHEN)
    hit = [each for each in run.cluster.requests if each.job.at < when + 15 and each.finished >= when]
    came = [each for each in run.cluster.requests if when <= each.job.at < when + 15]
    figures: Figures = {
        "paid_p99_around": rounded(ttft([each for each in came if each.job.lane == "paid"], 0.99)),
        "failed_around": sum(each.outcome in (FAILED, EXPIRED) for each in hit),
        "unanswered": sum(not each.outcome for each in hit),
        "recovery_s": rounded(recovery(run.cluster, when, "paid", objective("paid")), 1),
        "wrong_length": sum(each.outcome == DONE and each.emitted != each.job.output for each in run.cluster.requests),
        "series": series(run),
    }
    seen = audit(run)
    if seen is not None and seen.reclaimed:
        figures["reclaimed_max_s"] = rounded(max(seen.reclaimed), 2)
    return figures


def _done(requests: list[Request]) -> float:
    return sum(each.outcome == DONE for each in requests) / max(1, len(requests))
