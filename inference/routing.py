"""Which replica takes a request: pure rules over what a runner knows of its replicas."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

EJECT_AFTER = 5  # failures in a row
EJECT_SECONDS = 30.0  # times the number of ejections so far
MOST_EJECTED = 1 / 3  # of a pool, but always one


class ReplicaState(StrEnum):
    """What probes say: loading was never ready, or is being restarted by us; down was ready once."""

    LOADING = "loading"
    READY = "ready"
    DOWN = "down"


@dataclass
class ReplicaView:
    """One replica as a runner sees it. Times are of a monotonic clock, in seconds."""

    id: UUID
    slots: int
    state: ReplicaState = ReplicaState.LOADING
    loading_since: float = 0.0
    failures: int = 0  # of requests, in a row; probes do not count: a green /health proves nothing
    ejections: int = 0
    ejected_until: float = 0.0

    def succeeded(self) -> None:
        self.failures = self.ejections = 0

    def failed(self) -> None:
        """A fault of the replica: not a 4xx, which is the request's own."""
        self.failures += 1


def eject_failing(pool: Iterable[ReplicaView], now: float) -> list[ReplicaView]:
    """Takes replicas out that failed too often, never more than a third of the pool (at least one)."""
    views = list(pool)
    if sum(view.failures >= EJECT_AFTER or view.ejected_until > now for view in views) * 2 > len(views) > 1:
        return []  # more than half look bad: the fault is elsewhere
    room = max(1, int(len(views) * MOST_EJECTED)) - sum(view.ejected_until > now for view in views)
    chosen = [view for view in views if view.failures >= EJECT_AFTER and view.ejected_until <= now][: max(0, room)]
    for view in chosen:
        view.ejections += 1
        view.ejected_until = now + EJECT_SECONDS * view.ejections
        view.failures = EJECT_AFTER - 1  # half-open afterwards: one more failure ejects it again
    return chosen


def usable(pool: Iterable[ReplicaView], now: float) -> list[ReplicaView]:
    """Ready replicas that are not ejected; where none is left, ejection is off."""
    ready = [view for view in pool if view.state is ReplicaState.READY]
    return [view for view in ready if view.ejected_until <= now] or ready


def choose(candidates: Iterable[tuple[ReplicaView, int]], avoid: UUID | None) -> ReplicaView | None:
    """The emptiest replica with a free slot, the one that just failed the request only if it is alone.

    `candidates`: (replica, requests it has). None when every slot is taken.
    """
    free = [(view, taken) for view, taken in candidates if taken < view.slots]
    if not free:
        return None
    return min(free, key=lambda pair: (pair[0].id == avoid, pair[1] / pair[0].slots, pair[0].id))[0]
