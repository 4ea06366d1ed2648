"""Who waits, in the order in which they are served: lanes by clock, tenants by virtual time, requests by rank."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from inference.scheduling.clocks import Clocks
from inference.scheduling.settings import LANES, SchedulerSettings

Ranked = tuple[float, str]  # rank in ms, id


class LaneBacklog:
    """One lane: a queue for each tenant, and the tenants' virtual times."""

    def __init__(self) -> None:
        self.queues: dict[str, list[Ranked]] = {}  # backlogged tenants only
        self.clocks = Clocks()
        self.weights: dict[str, float] = {}
        self.live: dict[str, int] = {}  # a tenant's requests that are not settled

    @property
    def length(self) -> int:
        return sum(map(len, self.queues.values()))

    def heads(self, k: int) -> Iterator[tuple[str, int, str]]:
        """Up to `k` of (tenant, its how many-th, id): the first of each tenant, then the second of each, ..."""
        return islice(self._rounds(), k)

    def _rounds(self) -> Iterator[tuple[str, int, str]]:
        tenants = self.clocks.in_order()
        depth = 0
        while tenants:
            for tenant in tenants:
                yield tenant, depth, self.queues[tenant][depth][1]
            depth += 1
            tenants = [tenant for tenant in tenants if len(self.queues[tenant]) > depth]

    def ahead(self, tenant: str, rank: Ranked) -> int:
        """Requests that are served before one: each tenant gets its share of a turn for each turn of this one's."""
        own = bisect_left(self.queues[tenant], rank)
        total = own
        for other, queue in self.queues.items():
            if other != tenant:
                first = (self.clocks.times[other], other) < (self.clocks.times[tenant], tenant)
                turns = (own + first) * self.weights[other] / self.weights[tenant]
                total += min(len(queue), max(int(turns), int(first)))
        return total

    def before_next(self, tenant: str, coming: int, clamp: float) -> int:
        """Requests that would be served before one that the tenant brought now, `coming` others of it first.

        As `ahead`, without a look at each queue: all others are taken to have as many as they may be served.
        """
        own, others = len(self.queues.get(tenant, ())) + coming, len(self.queues.keys() - {tenant})
        live = tenant in self.live
        weight = self.weights[tenant] if live else 1.0
        if tenant in self.queues:
            time = self.clocks.times[tenant]
        else:
            time = self.clocks.joining_time(tenant, math.inf if live else clamp / weight)
        first = sum(self.clocks.times[other] < time for other in self.queues)
        return min(self.length + coming, own + first + int(own * others / weight))

    def enter(self, tenant: str, weight: float) -> None:
        """One more live request of the tenant; it needs a time of its own from now on."""
        self.weights[tenant] = weight
        self.live[tenant] = self.live.get(tenant, 0) + 1
        self.clocks.charge(tenant, 0.0)

    def exit(self, tenant: str) -> None:
        """One is settled. After the last, a tenant that has no debt is forgotten."""
        self.live[tenant] -= 1
        if self.live[tenant] == 0:
            del self.live[tenant]
            self._forget(tenant)

    def forget_idle(self) -> None:
        """Those whose debt the floor has caught up with."""
        for tenant in self.clocks:
            if tenant not in self.live:
                self._forget(tenant)

    def _forget(self, tenant: str) -> None:
        self.clocks.forget(tenant)
        if tenant not in self.clocks.times:
            del self.weights[tenant]


class Backlog:
    """All lanes, and their clocks."""

    def __init__(self) -> None:
        self.lanes = {name: LaneBacklog() for name in LANES}
        self.clocks = Clocks()

    def push(self, settings: SchedulerSettings, name: str, tenant: str, ranked: Ranked) -> None:
        """A request of a tenant that has entered waits. Tenant and lane are clamped if nothing of them waited.

        Their debt is cut only where nothing else of them is under way: a queue that is short, and so empty now and
        then, is not idle.
        """
        lane = self.lanes[name]
        alone = lane.live[tenant] == 1
        lane.clocks.join(tenant, settings.order.clamp / lane.weights[tenant] if alone else math.inf)
        insort(lane.queues.setdefault(tenant, []), ranked)
        alone = alone and len(lane.live) == 1
        self.clocks.join(name, settings.order.clamp / settings.lane(name).weight if alone else math.inf)

    def remove(self, name: str, tenant: str, ranked: Ranked) -> None:
        """It waits no more."""
        lane = self.lanes[name]
        queue = lane.queues[tenant]
        del queue[bisect_left(queue, ranked)]
        if not queue:
            del lane.queues[tenant]
            lane.clocks.leave(tenant)
        if not lane.queues:
            self.clocks.leave(name)

    def charge(self, settings: SchedulerSettings, name: str, tenant: str, wtok: float) -> None:
        """Tenant and lane have been served."""
        lane = self.lanes[name]
        lane.clocks.charge(tenant, wtok / lane.weights[tenant])
        self.clocks.charge(name, wtok / settings.lane(name).weight)

    def in_order(self) -> list[str]:
        """The backlogged lanes, the one to be served next first; `LANES` breaks ties."""
        return sorted(self.clocks.backlogged, key=lambda name: (self.clocks.times[name], LANES.index(name)))

    def lane_waits_for(self, settings: SchedulerSettings, name: str) -> str:
        """The lane that trails its share so far that this one may not be served before it, or ""."""
        own = self.clocks.times[name]
        for other in self.in_order():
            patience = settings.order.waited_for_quanta * settings.order.quantum / settings.lane(other).weight
            if other != name and own - self.clocks.times[other] > patience:
                return other
        return ""

    def is_next(
        self, settings: SchedulerSettings, now: int, name: str, tenant: str, ranked: Ranked, passing: bool
    ) -> bool:
        """Whether a request may start as far as order goes. `passing`: those whose turn it is found no place."""
        if self.lane_waits_for(settings, name):
            return False
        turn = self.has_turn(settings, name, tenant, ranked)
        return turn or (passing and self.may_pass(settings, now, name, tenant, ranked))

    def leads(self, name: str) -> dict[str, int]:
        """Of each of a lane's tenants that wait: by how many wtok it is ahead of the one that was served least."""
        lane = self.lanes[name]
        floor, times, weights = lane.clocks.floor, lane.clocks.times, lane.weights
        return {tenant: math.floor((times[tenant] - floor) * weights[tenant] + 0.5) for tenant in lane.queues}

    def has_turn(self, settings: SchedulerSettings, name: str, tenant: str, ranked: Ranked) -> bool:
        """Whether it is the first of a tenant that is within a quantum of the one that was served least."""
        lane = self.lanes[name]
        within = lane.clocks.lead(tenant) <= settings.order.quantum / lane.weights[tenant]
        return within and lane.queues[tenant][0] == ranked

    def may_pass(self, settings: SchedulerSettings, now: int, name: str, tenant: str, ranked: Ranked) -> bool:
        """Whether it may start before those whose turn it is, where these find no place.

        Its tenant is ahead of the one that was served least by no more quanta than a lane would be waited for, and the
        first request of either is young: for one that has waited for longer than `aging_ms` a place is kept.
        """
        lane, order = self.lanes[name], settings.order
        if lane.clocks.lead(tenant) > order.waited_for_quanta * order.quantum / lane.weights[tenant]:
            return False
        passed = {lane.queues[each][0] for each in (tenant, lane.clocks.least)} - {ranked}
        return all(rank > now - order.aging_ms for rank, _ in passed)
