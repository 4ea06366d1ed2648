"""What must always hold, as far as the simulator can show it: the bar, the figure measured, whether it is met."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulator.policies import CONTROL, FEW_LET_IN, NO_FLOOR, OURS, ROUND_ROBIN
from inference.scheduling.settings import SchedulerSettings

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION = ROOT / "docs" / "benchmarks" / "simulator" / "calibration.json"
REPLICAS = 2  # in the scenarios of two tenants
GAP = 25_000 * REPLICAS + 2 * SchedulerSettings().order.quantum  # wtok
Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One line of the table. `measured` is None where its scenario was not run, or the figure has no finite value."""

    number: str
    what: str
    bar: str
    low: float
    high: float
    measured: float | None
    unit: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "met" if self.low <= self.measured <= self.high else "**missed**"


def figure(results: Results, scenario: str, policy: str, *path: str) -> float | None:
    """A figure of a run, None where there is none."""
    found: Any = results.get(scenario, {}).get("policies", {}).get(policy)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def rows(results: Results, policy: str) -> list[Row]:
    return [
        *_fairness(results, policy),
        *_speed(results, policy),
        *_knowledge(results, policy),
        *_faults(results, policy),
    ]


def _fairness(results: Results, policy: str) -> Iterator[Row]:
    gap = figure(results, "weights-1-1", policy, "extra", "largest_gap_wtok")
    yield Row(
        "1", "two backlogged tenants of equal weight: service gap over any interval", f"≤ {GAP:,.0f} wtok", 0, GAP, gap
    )
    ratio = figure(results, "weights-1-4", policy, "extra", "ratio")
    yield Row("1", "weights 1:4, service over 10 minutes", "4 ± 2 %", 3.92, 4.08, ratio)
    idle = _most(results, policy, ("steady-50", "steady-80", "steady-95"), "extra", "idle_beside_open")
    yield Row("2", "share of time with a request beside a replica open to it, for > 50 ms", "0", 0, 0, idle)
    held = _most(results, policy, ("steady-50", "steady-80", "steady-95"), "extra", "held_by_order")
    yield Row("2", "the same for requests behind another tenant's that is too large to start", "0", 0, 0, held)
    own_order = _most(results, policy, ("steady-50", "steady-80", "steady-95"), "extra", "held_by_own")
    yield Row(
        "2", "the same for requests behind one of their own tenant that is too large to start", "0", 0, 0, own_order
    )
    # Where throughput is compared nothing is shed, so that all have the same work.
    best = figure(results, "saturated", ROUND_ROBIN, "throughput")
    own = figure(results, "saturated", policy, "throughput")
    yield Row(
        "2", "throughput over that of first come, first served", "≥ 0.98", 0.98, 9, own / best if own and best else None
    )
    for lane in ("enterprise", "paid", "free", "batch"):
        share = figure(results, "lanes", policy, "extra", f"{lane}_of_share")
        yield Row("3", f"backlogged {lane} lane, part of its weight's share", "≥ 0.9", 0.9, 99, share)
    pause = figure(results, "lanes", policy, "extra", "free_longest_pause_s")
    yield Row("3", "longest wait of a free head at 2x load", "≤ 60 s", 0, 60, pause, " s")


def _speed(results: Results, policy: str) -> Iterator[Row]:
    flooded = figure(results, "free-flood", policy, "paid", "p99")
    calm = figure(results, "free-flood", policy, "extra", "paid_p99_before")
    added = flooded - calm if flooded is not None and calm is not None else None
    yield Row("4", "paid TTFT p99 under a 5x free flood, above the unloaded one", "≤ 0.5 s", -9, 0.5, added, " s")
    paid, enterprise = (figure(results, "steady-80", policy, lane, "p95") for lane in ("paid", "enterprise"))
    yield Row("4", "paid TTFT p95 at 80 % load", "< 1 s", 0, 1, paid, " s")
    yield Row("4", "enterprise TTFT p95 at 80 % load", "< 0.5 s", 0, 0.5, enterprise, " s")


def _knowledge(results: Results, policy: str) -> Iterator[Row]:
    for load in (50, 80, 95):
        error = figure(results, f"steady-{load}", policy, "extra", "prediction_error_p50")
        yield Row("9", f"predicted TTFT at {load} % load, median error", "≤ 0.25", 0, 0.25, error)
        covers = figure(results, f"steady-{load}", policy, "extra", "prediction_p90_covers")
        yield Row("9", f"the p90 covers, at {load} % load", "0.85-0.95", 0.85, 0.95, covers)
    for load in (80, 95):
        wrong = figure(results, f"steady-{load}", CONTROL, "extra", "wrongly_refused") if policy == OURS else None
        if policy == OURS:
            yield Row(
                "9", f"refused though it would have met its objective, at {load} % load", "≤ 0.02", 0, 0.02, wrong
            )
    if policy == OURS:
        wrong = figure(results, "free-flood", FEW_LET_IN, "extra", "wrongly_refused")
        yield Row("9", "the same beside a 5x free flood", "≤ 0.02", 0, 0.02, wrong)
    ideal = figure(results, "chat", policy, "extra", "of_ideal")
    yield Row("10", "chats: prefix hits over those of an infinite cache", "≥ 0.85", 0.85, 1.01, ideal)
    for scenario, title in (
        ("hot-prefixes-15", "150 prefixes of 6,000 tokens, 15 a second"),
        ("hot-prefixes", "the same, 20 a second"),
        ("mooncake", "Mooncake conversations"),
    ):
        found = figure(results, scenario, policy, "extra", "of_ideal")
        yield Row("10", f"{title}: prefix hits over those of an infinite cache", "≥ 0.85", 0.85, 1.01, found)
    balance = figure(results, "steady-50", policy, "extra", "max_mean_in_flight")
    yield Row("10", "most over mean requests on a replica, 50 % load", "≤ 1.25", 0, 1.25, balance)
    chat = figure(results, "chat", policy, "extra", "max_mean_in_flight")
    yield Row("10", "the same in chats", "≤ 1.25", 0, 1.25, chat)


def _faults(results: Results, policy: str) -> Iterator[Row]:
    for lane in ("enterprise", "paid", "free"):
        seconds = figure(results, "overload", policy, "extra", f"{lane}_recovery_s")
        yield Row("", f"after a 2x overload: {lane} back at its objective", "≤ 30 s", 0, 30, seconds, " s")
    reclaimed = figure(results, "runner-killed", policy, "extra", "reclaimed_max_s")
    yield Row("6", "a killed runner's requests wait again for another one", "≤ 11 s", 0, 11, reclaimed, " s")
    for scenario in ("replica-killed", "replica-slow", "runner-killed", "redis-restarted"):
        lost = _sum(results, scenario, policy, ("unanswered", "wrong_length"))
        yield Row("6", f"{scenario}: requests without an end, or of a wrong length", "0", 0, 0, lost)


def calibration() -> list[Row]:
    """The simulator against the real engine, as last measured."""
    if not CALIBRATION.exists():
        return []
    loads = json.loads(CALIBRATION.read_text())["loads"]
    return [
        Row("", f"calibration, {name} load: median error of {title}", "≤ 0.20", 0, 0.2, load[key])
        for name, load in loads.items()
        for title, key in (("first tokens", "ttft_error_p50"), ("whole replies", "total_error_p50"))
    ]


def _most(results: Results, policy: str, scenarios: tuple[str, ...], *path: str) -> float | None:
    found = [figure(results, scenario, policy, *path) for scenario in scenarios]
    return max((value for value in found if value is not None), default=None)


def _sum(results: Results, scenario: str, policy: str, names: tuple[str, ...]) -> float | None:
    found = [figure(results, scenario, policy, "extra", name) for name in names]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


POLICIES = (OURS, NO_FLOOR)
