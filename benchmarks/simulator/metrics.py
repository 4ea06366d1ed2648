"""What a run showed: figures over its requests, and service over time for fairness."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.simulator.cluster import DONE, EXPIRED, FAILED, SHED, Cluster, Request
from inference.scheduling.settings import CostSettings

LANES = ("enterprise", "paid", "free", "batch")
COST = CostSettings()


def quantile(values: Iterable[float], share: float) -> float:
    """The value that this share does not exceed; infinite values count, NaN for none."""
    ranked = sorted(values)
    if not ranked:
        return math.nan
    return ranked[min(len(ranked) - 1, math.ceil(share * len(ranked)) - 1 if share > 0 else 0)]


def wtok(request: Request, emitted: int) -> float:
    """Service that a request had: uncached input + 0.1 cached input + 2 output, once its prompt was read."""
    if request.first == math.inf:
        return 0.0
    job = request.job
    return job.input - request.cached + COST.cached * request.cached + COST.output * emitted


@dataclass
class Observed:
    """Sampled each second: wtok by tenant and by lane so far, whether each tenant waited, requests on each replica."""

    seconds: list[float] = field(default_factory=list)
    service: list[dict[str, float]] = field(default_factory=list)
    lanes: list[dict[str, float]] = field(default_factory=list)
    waiting: list[dict[str, int]] = field(default_factory=list)
    in_flight: list[list[int]] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)


def observe(cluster: Cluster) -> Observed:
    """Has the cluster sampled while it runs."""
    observed = Observed()
    ended: dict[str, float] = {}
    live: dict[int, Request] = {}
    place = 0

    def sample() -> None:
        nonlocal place
        while place < len(cluster.requests) and cluster.requests[place].job.at <= cluster.now:
            live[place] = cluster.requests[place]
            place += 1
        for number in [number for number, request in live.items() if request.outcome]:
            request = live.pop(number)
            ended[request.job.tenant] = ended.get(request.job.tenant, 0.0) + wtok(request, request.emitted)
            lane = f"lane {request.job.lane}"
            ended[lane] = ended.get(lane, 0.0) + wtok(request, request.emitted)
        _sample(observed, cluster, ended, live.values())

    cluster.observers.append(sample)
    return observed


def _sample(observed: Observed, cluster: Cluster, ended: dict[str, float], live: Iterable[Request]) -> None:
    service = dict(ended)
    waiting: dict[str, int] = {}
    for request in live:
        served = wtok(request, request.tokens())
        for name in (request.job.tenant, f"lane {request.job.lane}"):
            service[name] = service.get(name, 0.0) + served
            waiting[name] = waiting.get(name, 0) + (request.sequence is None)
    observed.seconds.append(cluster.now)
    observed.service.append(service)
    observed.waiting.append(waiting)
    observed.in_flight.append([len(replica.holding) for replica in cluster.replicas if replica.up])
    observed.queued.append(sum(request.sequence is None for request in live))


@dataclass(frozen=True)
class Window:
    """The requests that came within [begin, end), so that filling and draining do not count."""

    requests: Sequence[Request]
    begin: float
    end: float

    def of(self, lane: str) -> list[Request]:
        return [request for request in self.requests if request.job.lane == lane]


def window(cluster: Cluster, begin: float, end: float) -> Window:
    return Window([request for request in cluster.requests if begin <= request.job.at < end], begin, end)


def ttft(requests: Iterable[Request], share: float) -> float:
    """Seconds; those that were refused do not count, those that still wait count as infinite."""
    return quantile((request.ttft for request in requests if request.outcome not in (SHED, EXPIRED)), share)


def throughput(cluster: Cluster, begin: float, end: float) -> float:
    """Tokens of prompts (cached or not) and replies, per second, of requests that were done in that time."""
    done = (each.job for each in cluster.requests if each.outcome == DONE and begin <= each.finished < end)
    return sum(job.input + job.output for job in done) / (end - begin)


def hit_rate(requests: Iterable[Request]) -> float:
    """Prompt tokens found in a cache, of those that were read."""
    read = [request for request in requests if request.first < math.inf]
    return sum(each.cached for each in read) / max(1, sum(each.job.input for each in read))


def streams(requests: Iterable[Request], share: float) -> float:
    """Tokens per second of a stream after its first token: the rate that this share of streams reaches or exceeds."""
    rates = [
        (each.job.output - 1) / (each.finished - each.first)
        for each in requests
        if each.outcome == DONE and each.job.output > 8
    ]
    return quantile(rates, 1 - share)


def lanes_present(requests: Iterable[Request]) -> list[str]:
    present = {request.job.lane for request in requests}
    return [lane for lane in LANES if lane in present]


def summary(cluster: Cluster, seen: Window) -> dict[str, Any]:
    """The figures that every scenario has, plain and rounded."""
    requests = seen.requests
    figures: dict[str, Any] = {"requests": len(requests)}
    for lane in lanes_present(requests):
        own = seen.of(lane)
        figures[lane] = {
            "requests": len(own),
            "p50": rounded(ttft(own, 0.50)),
            "p95": rounded(ttft(own, 0.95)),
            "p99": rounded(ttft(own, 0.99)),
            "refused": rounded(share(own, lambda each: each.outcome in (SHED, EXPIRED))),
        }
    figures["throughput"] = round(throughput(cluster, seen.begin, seen.end))
    figures["hits"] = rounded(hit_rate(requests))
    figures["slowest_streams"] = rounded(streams(requests, 0.95), 1)
    figures["failed"] = sum(each.outcome == FAILED for each in requests)
    figures["engine_preemptions"] = sum(replica.engine.preemptions for replica in cluster.replicas)
    return figures


def share(requests: Sequence[Request], which: Callable[[Request], bool]) -> float:
    return sum(map(which, requests)) / max(1, len(requests))


def rounded(value: float, digits: int = 3) -> float | None:
    """For JSON: None where a figure is not finite."""
    return round(value, digits) if math.isfinite(value) else None


def largest_gap(observed: Observed, first: str, second: str, weights: tuple[float, float] = (1.0, 1.0)) -> float:
    """Over any interval in which both waited all the time: the largest difference of service / weight, in wtok."""
    most = 0.0
    low = high = 0.0
    inside = False
    for service, waiting in zip(observed.service, observed.waiting, strict=True):
        if not (waiting.get(first, 0) and waiting.get(second, 0)):
            inside = False
            continue
        gap = service.get(first, 0.0) / weights[0] - service.get(second, 0.0) / weights[1]
        low, high = (min(low, gap), max(high, gap)) if inside else (gap, gap)
        inside = True
        most = max(most, high - low)
    return most


def served(observed: Observed, name: str, begin: float, end: float) -> float:
    """wtok of a tenant (or `lane <name>`) between two seconds."""
    inside = [place for place, second in enumerate(observed.seconds) if begin <= second <= end]
    first, last = observed.service[inside[0]], observed.service[inside[-1]]
    return last.get(name, 0.0) - first.get(name, 0.0)


def balance(observed: Observed, begin: float, end: float) -> float:
    """Max / mean requests in flight over the replicas, in the mean over the samples."""
    ratios = [
        max(counts) * len(counts) / sum(counts)
        for second, counts in zip(observed.seconds, observed.in_flight, strict=True)
        if begin <= second < end and sum(counts) >= len(counts)
    ]
    return sum(ratios) / len(ratios) if ratios else math.nan


def recovery(cluster: Cluster, after: float, lane: str, objective: float, width: float = 10.0) -> float:
    """Seconds from `after` until nine in ten of those that arrive in each later `width` seconds meet the objective."""
    own = [request for request in cluster.requests if request.job.lane == lane and request.job.at >= after]
    if not own:
        return math.nan
    last = math.ceil((own[-1].job.at - after) / width)
    good_from = 0.0
    for number in range(last):
        begin = after + number * width
        inside = [each for each in own if begin <= each.job.at < begin + width]
        met = sum(each.ttft <= objective for each in inside)
        if met < 0.9 * len(inside):
            good_from = (number + 1) * width
    return good_from
