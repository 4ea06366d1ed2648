"""Who was let in by this process and is not in the queue yet: what Redis counts does not have them."""

import asyncio
import math
import time
from collections import Counter
from dataclasses import dataclass

MOST_SECONDS = 10.0  # for who let it in may live on with it, or be stuck


@dataclass(slots=True, eq=False)
class _Arrival:
    lane: str
    tenant: str
    requests: int
    since: float
    entered: float = math.inf  # or refused meanwhile, by a quota

    def enter(self, _: object) -> None:
        self.entered = time.monotonic()


class Arriving:
    """Of one model, by lane, and by lane and tenant. Times as `time.monotonic`."""

    def __init__(self) -> None:
        self._arrivals: list[_Arrival] = []
        self.of_lane: Counter[str] = Counter()
        self.of_tenant: Counter[tuple[str, str]] = Counter()

    def add(self, lane: str, tenant: str, requests: int = 1) -> None:
        """Let in by the current task, and in the queue, or refused after all, when that is done."""
        self._count(arrival := _Arrival(lane, tenant, requests, time.monotonic()))
        task = asyncio.current_task()
        assert task is not None  # as in each coroutine
        task.add_done_callback(arrival.enter)

    def counted(self, at: float) -> None:
        """What Redis counted was asked for at that time, and has all that were in the queue by then."""
        arrivals, self._arrivals = self._arrivals, []
        self.of_lane.clear()
        self.of_tenant.clear()
        for arrival in arrivals:
            if arrival.entered > at and at - arrival.since < MOST_SECONDS:
                self._count(arrival)

    def _count(self, arrival: _Arrival) -> None:
        self._arrivals.append(arrival)
        self.of_lane[arrival.lane] += arrival.requests
        self.of_tenant[arrival.lane, arrival.tenant] += arrival.requests
