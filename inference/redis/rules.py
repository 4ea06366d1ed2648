"""The scheduler's settings that this process goes by, and what the Lua operations get of them."""

import msgspec

from inference.scheduling.settings import LANES, SchedulerSettings

_settings = SchedulerSettings()
_packed = b""


def settings() -> SchedulerSettings:
    """Those in force. Without I/O."""
    return _settings


def packed() -> bytes:
    """The first argument of the operations that need rules."""
    return _packed


def use(changed: SchedulerSettings) -> None:
    """From now on, in this process."""
    global _settings, _packed
    _settings, _packed = changed, pack(changed)


def pack(values: SchedulerSettings) -> bytes:
    """MessagePack, which Lua can read; times in ms."""
    lanes = {name: values.lane(name) for name in LANES}
    return msgspec.msgpack.encode(
        {
            "weight": {name: float(lane.weight) for name, lane in lanes.items()},
            "gate": {name: float(lane.gate_seconds) for name, lane in lanes.items()},
            "urgent": {name: lane.preempts for name, lane in lanes.items()},
            "ceiling": {name: float(lane.ceiling) for name, lane in lanes.items()},
            "quantum": values.order.quantum,
            "patience": values.order.waited_for_quanta * values.order.quantum,
            "clamp": values.order.clamp,
            "aging": values.order.aging_ms,
            "cached": values.cost.cached,
            "output": values.cost.output,
            "lease": int(values.lease.lease_seconds * 1000),
            "again": int(values.lease.requeued_wait_seconds * 1000),
            "failures": values.lease.max_attempts,
            "limit": values.lease.reap_limit,
        }
    )


use(_settings)
