"""The rules of one model's queues, leases and counters, as plain Python. One method is one Redis operation.

`Book` is what the Lua scripts are tested against, and what the simulator drives. Signatures are stable. `now` is always
the first argument, in whole milliseconds (the scripts read Redis' own clock). Ids are strings, tokens are counts.
Every operation may be repeated: the second time it changes nothing and says so.
"""

from collections import Counter
from collections.abc import Sequence

from inference.scheduling.answers import (
    Answer,
    Committed,
    Counters,
    Head,
    Outcome,
    Peeked,
    Place,
    Refusal,
    Released,
    Running,
    State,
)
from inference.scheduling.backlog import Backlog
from inference.scheduling.capacity import refusal
from inference.scheduling.ledger import Ledger, Request
from inference.scheduling.settings import SchedulerSettings


class Book:
    """One slot `{m:<model>/<shard>}`. `settings` may be replaced at any time."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.settings = settings or SchedulerSettings()
        self._backlog = Backlog()
        self._requests: dict[str, Request] = {}
        self._ledger = Ledger()
        self._ended: dict[str, Outcome] = {}  # in the order in which they ended

    def describe(
        self, now: int, replica: str, *, capn: int, capkv: int, peak_rate: float, open: bool = True
    ) -> Counters:
        """A runner's scrape: what the replica holds and whether it takes new requests. What is on it stays counted.

        `capn` is already lowered by `routing.sequence_limit`; `open` is False while it drains, loads or is ejected.
        `capkv` 0 is not known, and no limit.
        """
        described = self._ledger.replica(replica)
        described.capn, described.capkv, described.peak_rate, described.open = capn, capkv, peak_rate, open
        return described.counters()

    def enqueue(
        self,
        now: int,
        id: str,
        lane: str,
        tenant: str,
        *,
        input: int,
        uncached: int,
        kv: int,
        deadline: int,
        peak_rate: float,
        weight: float = 1.0,
        rank: float | None = None,
        attempt: int = 0,
        emitted: int = 0,
    ) -> bool:
        """Let it wait. False when it is known already (whatever its state), and nothing changes.

        rank = now + min(5000, 1000 * uncached / peak_rate), unless `rank` gives the one it had before Redis lost it.
        A tenant, and a lane, that becomes backlogged gets its virtual time clamped to at least the floor and, if
        nothing else of it is under way, at most floor + clamp / weight. `weight` is the tenant's own; the latest one
        counts. Raises ValueError for an unknown lane.
        """
        self.settings.lane(lane)
        if id in self._requests:
            return False
        if rank is None:
            rank = now + min(self.settings.order.aging_ms, 1000 * uncached / peak_rate if peak_rate > 0 else 0.0)
        request = self._enter(Request(id, lane, tenant, input, uncached, kv, deadline, rank, attempt, emitted), weight)
        self._backlog.push(self.settings, lane, tenant, request.ranked)
        return True

    def peek(self, now: int, k: int, replicas: Sequence[str] = ()) -> Peeked:
        """Up to `k` requests of each lane: lanes by clock, in them tenants by virtual time, in them requests by rank.

        First each tenant's first request, then each one's second, and so on, so that a few commits can follow one
        peek. Those with `turn` may be committed in any order that suits (a prefix match, say); the others have a
        chance once those ahead of them are gone, or, if they may be `passing`, find no place.
        """
        heads: list[Head] = []
        waited_for = ""
        for lane in self._backlog.in_order():
            blocking = self._backlog.lane_waits_for(self.settings, lane)
            waited_for = waited_for or blocking
            leads = self._backlog.leads(lane) if k and not blocking else {}
            for tenant, _, id in self._backlog.lanes[lane].heads(k):
                request = self._requests[id]
                turn = not blocking and self._backlog.has_turn(self.settings, lane, tenant, request.ranked)
                other = not blocking and not turn
                passing = other and self._backlog.may_pass(self.settings, now, lane, tenant, request.ranked)
                heads.append(request.head(turn, passing, leads.get(tenant, 0)))
        return Peeked(tuple(heads), {id: self._ledger.counters(id) for id in replicas}, waited_for)

    def commit(
        self, now: int, id: str, replica: str, runner: str, *, uncached: int, attempt: int, passing: bool = False
    ) -> Committed:
        """Place a request: order, gate, slots and KV are checked, and everything is counted, in one step.

        `uncached`: tokens that this replica has to prefill. `attempt`: what `peek` showed; the same runner that
        repeats the same commit gets the same answer. `passing`: those whose turn it is found no place. On success the
        request is leased to attempt + 1, and qpf, kv and n of the replica are charged; and to tenant and lane, the
        first time, the input's wtok: a prompt that is read again, after a preemption or on another replica, was paid
        for.
        """
        request = self._requests.get(id)
        if request is None:
            return Committed(0, Refusal.GONE)
        if request.held_by(attempt + 1) and (request.replica, request.runner) == (replica, runner):
            return Committed(request.attempt)
        if request.state is not State.QUEUED or request.attempt != attempt:
            return Committed(0, Refusal.GONE)
        if not self._backlog.is_next(self.settings, now, request.lane, request.tenant, request.ranked, passing):
            return Committed(0, Refusal.TURN)
        refused = self._refusal(request, replica, uncached)
        if refused is not Refusal.NONE:
            return Committed(0, refused)
        self._place(now, request, replica, runner, uncached)
        return Committed(request.attempt)

    def first_token(self, now: int, id: str, attempt: int) -> Answer:
        """Its prefill is over: qpf is given back. OK also when it was before."""
        request = self._held(id, attempt)
        if isinstance(request, Answer):
            return request
        self._ledger.prefilled(request)
        return Answer.OK

    def heartbeat(self, now: int, running: Sequence[tuple[str, int, int]]) -> tuple[Answer, ...]:
        """Renew a runner's leases. `running`: (id, attempt, tokens emitted in all); an answer for each.

        Output is charged as it was generated; where the context outgrows what was reserved, kv grows along.
        """
        return tuple(self._renew(now, id, attempt, emitted) for id, attempt, emitted in running)

    def cancel(self, now: int, id: str, *, waiting: bool = False) -> State:
        """Somebody asked to stop it: what it was. QUEUED: it has ended now. RUNNING: its heartbeat is told.

        `waiting`: only if it waits; else nothing changes.
        """
        request = self._requests.get(id)
        if request is None:
            return State.UNKNOWN
        before = request.state
        if before is State.RUNNING and not waiting:
            request.cancelled = True
        elif before is State.QUEUED:
            self._end_queued(request, Outcome.CANCELLED)
        return before

    def preempt(self, now: int, id: str, attempt: int) -> Answer:
        """Its place is wanted by somebody else: its heartbeat is told."""
        request = self._held(id, attempt)
        if isinstance(request, Answer):
            return request
        request.preempted = True
        return Answer.OK

    def release(
        self,
        now: int,
        id: str,
        attempt: int,
        *,
        emitted: int,
        failed: bool = False,
        preempted: bool = False,
        avoid: str = "",
    ) -> Released:
        """Give a running request back: to the queue at its old rank, or to the ended.

        `failed` counts towards the three attempts; a handover or preemption does not. `avoid` is the replica that
        failed it, which is remembered beside those that did before.
        """
        request = self._held(id, attempt)
        if isinstance(request, Answer):
            return Released.STALE
        self._charge_output(request, emitted)
        self._ledger.give_back(request)
        if avoid and avoid not in request.avoid:
            request.avoid += (avoid,)
        request.failures += failed
        request.preemptions += preempted
        return self._requeue_or_end(now, request)

    def reap(self, now: int, *, loading: bool = False) -> tuple[tuple[str, Outcome], ...]:
        """Take back expired leases, end what waited too long; at most `reap_limit` of each in a call.

        While the model is `loading`, the wait of what never ran does not run out. A lease that is longer than any can
        be was given before the clock was set back, and is made as long as a new one. Returns everything that has ended
        here and is not settled (the oldest `reap_limit`), again each time.
        """
        limit, longest = self.settings.lease.reap_limit, self._expiry(now)
        for request in [each for each in self._ledger.leased.values() if each.expiry > longest][:limit]:
            request.expiry = longest
        expired = sorted((each.expiry, id) for id, each in self._ledger.leased.items() if each.expiry <= now)
        for _, id in expired[:limit]:
            request = self._requests[id]
            self._ledger.give_back(request)
            request.failures += 1
            self._requeue_or_end(now, request)
        waiting = (each for each in self._requests.values() if each.state is State.QUEUED)
        due = sorted((each.deadline, each.id) for each in waiting if each.deadline <= now)
        for _, id in due[:limit]:
            self._time_out(now, self._requests[id], loading)
        for lane in self._backlog.lanes.values():
            lane.forget_idle()
        return tuple(self._ended.items())[:limit]

    def settle(self, now: int, id: str, *, emitted: int = 0) -> bool:
        """PostgreSQL has its end: charge the last tokens (`emitted` in all), give back everything, forget it.

        False when it was not known.
        """
        request = self._requests.pop(id, None)
        if request is None:
            return False
        self._charge_output(request, emitted)
        if request.state is State.RUNNING:
            self._ledger.give_back(request)
        elif request.state is State.QUEUED:
            self._backlog.remove(request.lane, request.tenant, request.ranked)
        self._ended.pop(id, None)
        self._backlog.lanes[request.lane].exit(request.tenant)
        return True

    def set_aside(self, now: int, id: str, attempt: int) -> bool:
        """One that has not begun is forgotten, and may be enqueued again; False when that attempt holds it no more."""
        return isinstance(self._held(id, attempt), Request) and self.settle(now, id)

    def reopen(
        self,
        now: int,
        id: str,
        lane: str,
        tenant: str,
        *,
        attempt: int,
        replica: str,
        runner: str,
        input: int,
        kv: int,
        emitted: int,
        uncached: int,
        deadline: int,
        rank: float,
        weight: float = 1.0,
    ) -> bool:
        """Redis lost a request that its runner still streams: lease and counts come back without a charge.

        `uncached` is what is still to be prefilled, 0 after the first token. True also when that attempt holds it
        already; False when somebody else has entered it meanwhile. Raises ValueError for an unknown lane.
        """
        self.settings.lane(lane)
        known = self._requests.get(id)
        if known is not None:
            return known.held_by(attempt)
        request = self._enter(Request(id, lane, tenant, input, uncached, kv, deadline, rank, attempt, emitted), weight)
        self._ledger.hold(request, replica, runner, uncached, self._expiry(now), now)
        return True

    def place(self, id: str) -> Place:
        """Where it stands."""
        request = self._requests.get(id)
        if request is None:
            return Place(State.UNKNOWN)
        lane = self._backlog.lanes[request.lane]
        queued = request.state is State.QUEUED
        return Place(
            request.state, request.lane, lane.ahead(request.tenant, request.ranked) if queued else 0, lane.length
        )

    def before_next(self, now: int, lane: str, tenant: str, coming: int = 0) -> int:
        """How many of the lane's requests would be served before one that the tenant brought now.

        `coming`: requests of it that are let in and about to be enqueued.
        """
        return self._backlog.lanes[lane].before_next(tenant, coming, self.settings.order.clamp)

    def under_way(self, lane: str, tenant: str) -> int:
        """Requests of the tenant that are not settled."""
        return self._backlog.lanes[lane].live.get(tenant, 0)

    def tenants(self, lane: str) -> int:
        """How many have requests that are not settled."""
        return len(self._backlog.lanes[lane].live)

    def running(self) -> tuple[Running, ...]:
        """All live leases (also those that have expired and are not reaped yet)."""
        return tuple(request.running() for request in self._ledger.leased.values())

    def waiting(self) -> dict[str, int]:
        """How many requests wait in each lane."""
        return {name: lane.length for name, lane in self._backlog.lanes.items()}

    def running_by_lane(self) -> dict[str, int]:
        """How many requests of each lane have a lease."""
        counted = Counter(each.lane for each in self._ledger.leased.values())
        return {name: counted[name] for name in self._backlog.lanes}

    def floors(self) -> dict[str, float]:
        """Of the lanes' clocks, and of the tenants' clocks in each lane: they never fall."""
        lanes = {name: lane.clocks.floor for name, lane in self._backlog.lanes.items()}
        return {"lanes": self._backlog.clocks.floor} | lanes

    # ------------------------------------------------------------------------------------------------ inside

    def _enter(self, request: Request, weight: float) -> Request:
        self._requests[request.id] = request
        self._backlog.lanes[request.lane].enter(request.tenant, weight)
        return request

    def _held(self, id: str, attempt: int) -> Request | Answer:
        """The request, or why that attempt does not hold it."""
        request = self._requests.get(id)
        if request is None:
            return Answer.UNKNOWN
        return request if request.held_by(attempt) else Answer.STALE

    def _refusal(self, request: Request, replica: str, uncached: int) -> Refusal:
        held = self._ledger.counters(replica)
        if not held.open:
            return Refusal.REPLICA
        cached = request.input + request.emitted - uncached
        return refusal(self.settings.lane(request.lane), held, uncached, request.context, cached)

    def _place(self, now: int, request: Request, replica: str, runner: str, uncached: int) -> None:
        if request.attempt == 0:
            wtok = uncached + self.settings.cost.cached * max(0, request.input - uncached)
            self._backlog.charge(self.settings, request.lane, request.tenant, wtok)
        self._backlog.remove(request.lane, request.tenant, request.ranked)
        request.attempt += 1
        self._ledger.hold(request, replica, runner, uncached, self._expiry(now), now)

    def _renew(self, now: int, id: str, attempt: int, emitted: int) -> Answer:
        request = self._held(id, attempt)
        if isinstance(request, Answer):
            return request
        request.expiry = self._expiry(now)
        self._charge_output(request, emitted)
        if request.emitted > request.emitted_before:
            self._ledger.prefilled(request)
        self._ledger.grow(request)
        if request.cancelled:
            return Answer.CANCELLED
        return Answer.PREEMPTED if request.preempted else Answer.OK

    def _charge_output(self, request: Request, emitted: int) -> None:
        new = emitted - request.emitted
        if new > 0:
            self._backlog.charge(self.settings, request.lane, request.tenant, self.settings.cost.output * new)
            request.emitted = emitted

    def _requeue_or_end(self, now: int, request: Request) -> Released:
        request.preempted = False
        if request.cancelled:
            self._end(request, Outcome.CANCELLED)
            return Released.CANCELLED
        if request.failures >= self.settings.lease.max_attempts:
            self._end(request, Outcome.FAILED)
            return Released.FAILED
        request.state = State.QUEUED
        request.deadline = max(request.deadline, self._again(now))
        self._backlog.push(self.settings, request.lane, request.tenant, request.ranked)
        return Released.QUEUED

    def _time_out(self, now: int, request: Request, loading: bool) -> None:
        if loading and request.attempt == 0:
            request.deadline = self._again(now)
        else:
            self._end_queued(request, Outcome.EXPIRED)

    def _end_queued(self, request: Request, outcome: Outcome) -> None:
        self._backlog.remove(request.lane, request.tenant, request.ranked)
        self._end(request, outcome)

    def _end(self, request: Request, outcome: Outcome) -> None:
        request.state, request.outcome = State.ENDED, outcome
        self._ended[request.id] = outcome

    def _expiry(self, now: int) -> int:
        return now + int(self.settings.lease.lease_seconds * 1000)

    def _again(self, now: int) -> int:
        return now + int(self.settings.lease.requeued_wait_seconds * 1000)
