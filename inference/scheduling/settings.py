"""Every number of the scheduler in one frozen structure, checked when it is made.

`SchedulerSettings()` has the defaults. `SchedulerSettings.from_dict` takes a plain dict (JSON from a database, say) in
which any key may be missing, and `to_dict` gives one back. Both raise `InvalidSettings`, which names every fault by its
dotted path.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar, get_type_hints

LANES = ("enterprise", "paid", "free", "batch")
S = TypeVar("S", bound="Section")


class InvalidSettings(ValueError):
    """The scheduler's settings are not valid."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def number(default: float | None, low: float, high: float, *, optional: bool = False) -> Any:
    """A field that holds a number within [low, high], or None where that is optional."""
    return field(default=default, metadata={"low": low, "high": high, "optional": optional})


@dataclass(frozen=True)
class Section:
    """A group of numbers. Raises InvalidSettings when it is made with one that is out of its range."""

    def __post_init__(self) -> None:
        faults = _faults(self) or self._contradictions()
        if faults:
            raise InvalidSettings(faults)

    def _contradictions(self) -> list[str]:
        """What is wrong with numbers that are each within their range."""
        return []


@dataclass(frozen=True)
class LaneSettings(Section):
    """One lane. Of the waits, None is no objective, the job's own deadline, and never shed."""

    weight: float = number(15.0, 0.001, 1e6)
    gate_seconds: float = number(0.25, 0.0, 3600.0)  # of the replica's peak prefill rate
    ceiling: float = number(0.9, 0.01, 1.0)  # of a replica's slots and KV tokens
    objective_seconds: float | None = number(5.0, 0.001, 86400.0, optional=True)  # time to first token
    timeout_seconds: float | None = number(60.0, 0.1, 7 * 86400.0, optional=True)  # in the queue
    shed_from: float | None = number(0.7, 0.0, 100.0, optional=True)  # predicted p90 / objective
    shed_span: float = number(0.6, 0.001, 100.0)  # from the first to every request shed
    preempts: bool = False  # takes running work's place where it would miss its objective
    preempted_before_first_token: bool = True
    preempted_after_first_token: bool = False


@dataclass(frozen=True)
class LanesSettings(Section):
    """The four lanes, in the order that breaks ties."""

    enterprise: LaneSettings = field(
        default_factory=lambda: LaneSettings(
            50.0, 1.0, 1.0, 0.5, 30.0, None, 1.0, preempts=True, preempted_before_first_token=False
        )
    )
    paid: LaneSettings = field(
        default_factory=lambda: LaneSettings(
            30.0, 1.0, 1.0, 1.0, 30.0, 1.0, 1.0, preempts=True, preempted_before_first_token=False
        )
    )
    free: LaneSettings = field(default_factory=LaneSettings)
    batch: LaneSettings = field(
        default_factory=lambda: LaneSettings(5.0, 0.06, 0.7, None, None, None, 1.0, preempted_after_first_token=True)
    )


@dataclass(frozen=True)
class CostSettings(Section):
    """wtok = uncached input + cached * cached input + output * output."""

    cached: float = number(0.1, 0.0, 10.0)
    output: float = number(2.0, 0.0, 100.0)


@dataclass(frozen=True)
class OrderSettings(Section):
    """Who is next. Quantum and clamp are wtok at weight 1."""

    quantum: float = number(8192.0, 1.0, 1e9)  # heads this close are equals
    clamp: float = number(65536.0, 1.0, 1e9)  # most debt somebody takes along into a new backlog
    waited_for_quanta: float = number(2.0, 0.0, 1e6)  # a lane that trails by more is waited for, a tenant not passed
    # Most that a long prompt is ranked behind a short one; and what has waited for longer than this is not passed.
    aging_ms: int = number(5000, 0, 3_600_000)


@dataclass(frozen=True)
class LeaseSettings(Section):
    """Leases and attempts."""

    lease_seconds: float = number(7.0, 0.1, 3600.0)
    abort_seconds: float = number(5.0, 0.05, 3600.0)  # a runner ends its own stream this long after its last renewal
    heartbeat_seconds: float = number(1.0, 0.01, 60.0)
    reap_limit: int = number(200, 1, 100_000)  # requests in one reap
    max_attempts: int = number(3, 1, 100)
    requeued_wait_seconds: float = number(10.0, 0.1, 86400.0)  # the least that a requeued request may wait again

    def _contradictions(self) -> list[str]:
        if self.abort_seconds + self.heartbeat_seconds > self.lease_seconds:
            return ["abort_seconds and heartbeat_seconds together must not exceed lease_seconds"]
        return []


@dataclass(frozen=True)
class ScoreSettings(Section):
    """What a replica's score is made of, and when a request stays where its prefix is."""

    kv_weight: float = number(0.5, 0.0, 1000.0)  # seconds at k = 1
    kv_from: float = number(0.8, 0.0, 0.999)
    slots_weight: float = number(1.0, 0.0, 1000.0)  # seconds at n = capn
    sticky_share: float = number(0.8, 0.0, 1.0)  # of the input that matches, or
    sticky_tokens: int = number(2048, 1, 10_000_000)
    leave_seconds: float = number(2.0, 0.0, 3600.0)
    leave_share: float = number(0.25, 0.0, 10.0)  # of the objective
    leave_load: float = number(1.25, 1.0, 1000.0)  # times the mean number of requests on a replica
    leave_kv_usage: float = number(0.92, 0.0, 1.0)
    leave_preempted_seconds: float = number(10.0, 0.0, 3600.0)
    exploration: float = number(0.01, 0.0, 1.0)
    min_decode_rate: float = number(30.0, 0.0, 100_000.0)  # tokens/s of each stream; 0 is off


@dataclass(frozen=True)
class ReplicaSettings(Section):
    """What is believed of a replica, and for how long."""

    stale_seconds: float = number(2.0, 0.0, 3600.0)
    stale_factor: float = number(1.2, 1.0, 100.0)
    suspect_seconds: float = number(10.0, 0.0, 3600.0)
    kv_low: float = number(0.5, 0.01, 1.0)  # of the physical KV tokens
    kv_high: float = number(0.95, 0.01, 1.0)
    kv_down: float = number(0.8, 0.01, 1.0)
    kv_up: float = number(1.02, 1.0, 10.0)
    kv_seconds: float = number(5.0, 0.0, 3600.0)
    kv_usage: float = number(0.92, 0.0, 1.0)
    rate_min_tokens: int = number(256, 1, 1_000_000)  # uncached tokens of a sample of the prefill rate
    rate_quantile: float = number(0.9, 0.0, 1.0)
    rate_samples: int = number(100, 1, 100_000)  # kept
    rate_min_samples: int = number(5, 1, 100_000)  # before they replace the first figure
    health_low: float = number(0.2, 0.001, 1.0)
    health_high: float = number(1.0, 0.001, 10.0)
    health_alpha: float = number(0.2, 0.001, 1.0)  # of the moving average

    def _contradictions(self) -> list[str]:
        return _reversed(
            self,
            ("kv_low", "kv_high"),
            ("health_low", "health_high"),
            ("stale_seconds", "suspect_seconds"),
            ("rate_min_samples", "rate_samples"),
        )


@dataclass(frozen=True)
class EjectionSettings(Section):
    """When a replica that fails requests is left out."""

    failures: int = number(5, 1, 1000)  # in a row
    seconds: float = number(30.0, 0.1, 86400.0)  # times the number of ejections
    most_seconds: float = number(600.0, 0.1, 86400.0)
    most_share: float = number(1 / 3, 0.0, 1.0)  # of a pool, but always one
    off_share: float = number(0.5, 0.0, 1.0)  # if more look bad, the fault is elsewhere
    half_open_requests: int = number(1, 1, 1000)  # at a time, until one succeeds
    first_token_factor: float = number(3.0, 1.0, 1000.0)  # times its prediction
    first_token_seconds: float = number(60.0, 0.1, 86400.0)  # until there are predictions
    silence_seconds: float = number(10.0, 0.1, 86400.0)
    silence_factor: float = number(3.0, 0.0, 1000.0)  # times the longest prefill step

    def _contradictions(self) -> list[str]:
        return _reversed(self, ("seconds", "most_seconds"))


@dataclass(frozen=True)
class PrefixSettings(Section):
    """The index of cached prefixes."""

    seconds: float = number(600.0, 1.0, 86400.0)
    checkpoints: int = number(16, 1, 1024)  # of one prompt
    most: int = number(200_000, 1, 100_000_000)  # hashes in an index


@dataclass(frozen=True)
class PredictionSettings(Section):
    """Predicted time to first token."""

    quantile: float = number(0.9, 0.5, 0.999)
    samples: int = number(200, 1, 100_000)  # kept of each size of wait
    min_samples: int = number(20, 1, 100_000)  # of a size, to go by it; until then nothing is decided by prediction
    remember_seconds: float = number(600.0, 1.0, 86_400.0)  # a size that has not come for so long is forgotten
    shortest_seconds: float = number(0.02, 0.0001, 10.0)  # a shorter prediction is compared as this


@dataclass(frozen=True)
class AdmissionSettings(Section):
    """Who is let in, and whose place is taken. What a lane is shed by is with the lane."""

    queue_to: float = number(0.7, 0.0, 100.0)  # predicted p90 / objective: below, everybody waits
    fallback_from: float = number(1.0, 0.0, 100.0)
    offer_smaller_seconds: float = number(5.0, 0.0, 3600.0)
    queue_cap: int = number(10_000, 1, 10_000_000)  # requests that wait in a lane
    retry_after_jitter: float = number(0.2, 0.0, 0.9)
    retry_after_low: float = number(1.0, 0.0, 3600.0)
    retry_after_high: float = number(120.0, 0.1, 86400.0)
    max_preemptions: int = number(2, 0, 100)  # of one request, after its first token
    retry_share: float = number(0.1, 0.0, 1.0)  # retried of dispatched tokens
    retry_window_seconds: float = number(10.0, 0.1, 3600.0)
    retry_floor: int = number(3, 0, 10_000)  # retries in a window that are always allowed

    def _contradictions(self) -> list[str]:
        return _reversed(self, ("retry_after_low", "retry_after_high"))


@dataclass(frozen=True)
class SchedulerSettings(Section):
    """All of it. Compare, replace (`dataclasses.replace`) and store as a whole."""

    lanes: LanesSettings = field(default_factory=LanesSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    order: OrderSettings = field(default_factory=OrderSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    ejection: EjectionSettings = field(default_factory=EjectionSettings)
    prefix: PrefixSettings = field(default_factory=PrefixSettings)
    prediction: PredictionSettings = field(default_factory=PredictionSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)

    def lane(self, name: str) -> LaneSettings:
        """The settings of one of `LANES`. Raises ValueError for another name."""
        if name not in LANES:
            raise ValueError(f"There is no lane {name!r}.")
        lane: LaneSettings = getattr(self.lanes, name)
        return lane

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of plain numbers, as `from_dict` takes them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The defaults with what `data` says. Raises InvalidSettings: unknown key, wrong type, out of range."""
        faults: list[str] = []
        merged = _merged(cls(), data, "", faults)
        if faults:
            raise InvalidSettings(faults)
        return merged


def _reversed(section: Section, *pairs: tuple[str, str]) -> list[str]:
    """The pairs of which the first exceeds the second."""
    wrong = ((low, high) for low, high in pairs if getattr(section, low) > getattr(section, high))
    return [f"{low} must not exceed {high}" for low, high in wrong]


def _faults(section: Section) -> list[str]:
    hints = get_type_hints(type(section))
    faults = []
    for each in fields(section):
        fault = _fault(getattr(section, each.name), hints[each.name], each.metadata)
        if fault:
            faults.append(f"{each.name} {fault}")
    return faults


def _fault(value: object, hint: Any, metadata: Mapping[str, Any]) -> str:
    """What is wrong with a value, or nothing."""
    if hint is bool:
        return "" if isinstance(value, bool) else "must be true or false"
    if "low" not in metadata:
        return "" if isinstance(value, hint) else f"must be a group of {hint.__name__}"
    if value is None and metadata["optional"]:
        return ""
    if isinstance(value, bool) or not isinstance(value, int if hint is int else (int, float)):
        return "must be a whole number" if hint is int else "must be a number"
    if not math.isfinite(value) or not metadata["low"] <= value <= metadata["high"]:
        return f"must be within {metadata['low']:g} and {metadata['high']:g}, not {value:g}"
    return ""


def _merged(default: S, data: object, path: str, faults: list[str]) -> S:
    if not isinstance(data, Mapping):
        faults.append(f"{path.rstrip('.') or 'the whole'} must be an object")
        return default
    names = {each.name for each in fields(default)}
    faults += [f"{path}{key} is not a setting" for key in data if key not in names]
    changes: dict[str, Any] = {}
    for name in names & set(data):
        present = getattr(default, name)
        nested = isinstance(present, Section)
        changes[name] = _merged(present, data[name], f"{path}{name}.", faults) if nested else data[name]
    try:
        return dataclasses.replace(default, **changes)
    except InvalidSettings as error:
        faults += [f"{path}{fault}" for fault in error.faults]
        return default
