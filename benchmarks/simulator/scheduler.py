"""The product's scheduling rules as a policy of the simulator: what web process and runners do, without their I/O.

Acceptance predicts and admits, runners peek, choose and commit, heartbeats charge, scrapes inform: all by the code in
inference/scheduling. Only the plumbing is here, in `acceptance` and in `upkeep`.
"""

import random
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.simulator.acceptance import Acceptance
from benchmarks.simulator.cluster import SHED, Cluster, Replica, Request
from benchmarks.simulator.replica_view import ReplicaView
from benchmarks.simulator.tickets import Audit, Options, Ticket
from benchmarks.simulator.upkeep import Upkeep
from inference.scheduling.admission import RetryBudget, should_preempt, victim
from inference.scheduling.answers import Committed, Counters, Head
from inference.scheduling.book import Book
from inference.scheduling.prefixes import Matched, PrefixIndex, checkpoint_hashes
from inference.scheduling.routing import HOPING, Demand, Load, assess, choose, usable, with_best_match_first
from inference.scheduling.settings import SchedulerSettings

PEEK = 8  # heads of each lane
WAKE_SECONDS = 0.002  # from an event until a runner has looked
MATCHES_KEPT = 0.25  # seconds
PREEMPTION_PAUSE = 0.2  # seconds after a victim was told
NO_DEADLINE = 10**12
AUDIT_SECONDS = 0.05


class Scheduler:
    """One model's pool. Times are the cluster's seconds; the book's are milliseconds of the same clock."""

    def __init__(
        self, settings: SchedulerSettings | None = None, options: Options | None = None, seed: int = 1
    ) -> None:
        self.settings = settings or SchedulerSettings()
        self.options = options or Options()
        self.rng = random.Random(seed)
        self.book = Book(self.settings)
        self.audit = Audit()
        self.tickets: dict[str, Ticket] = {}
        self.views: dict[str, ReplicaView] = {}
        self.retries = RetryBudget(self.settings.admission)
        self.runners = list(range(self.options.runners))
        self.redis_up = True
        self._outputs: dict[str, float] = {}
        self._wake_at = -1.0
        self._preempt_from = 0.0
        self._turn = 0

    # ------------------------------------------------------------------ events of the cluster

    def start(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.index = PrefixIndex(self.settings.prefix, cluster.profile.block)
        self.upkeep = Upkeep(self)
        self.acceptance = Acceptance(self)
        for replica in cluster.replicas:
            self.joined(replica)
        cluster.at(AUDIT_SECONDS, self._look_for_idleness)

    def arrive(self, request: Request) -> None:
        job = request.job
        ticket = Ticket(request, f"{job.number:07d}", self._expected_output(job.lane), job.input)
        ticket.matches, ticket.matched = self._match(request), self.cluster.now
        ticket.uncached = max(1, job.input - max((each.tokens for each in ticket.matches.values()), default=0))
        timeout = self.settings.lane(job.lane).timeout_seconds
        ticket.deadline = NO_DEADLINE if timeout is None else self.now_ms + int(timeout * 1000)
        if not self.redis_up:
            self.tickets[ticket.id] = ticket  # accepted; entered when Redis is back
            return
        if not self.acceptance.admits(ticket):
            self.cluster.end(request, SHED)
            return
        self.tickets[ticket.id] = ticket
        self.enqueue(ticket)
        self.wake()

    def first_token(self, request: Request) -> None:
        ticket = self._ticket(request)
        now = self.cluster.now
        ticket.started = True
        if self.redis_up:
            self.book.first_token(self.now_ms, ticket.id, ticket.attempt)
        view = self.views[ticket.replica]
        if ticket.queued_prefill == ticket.own_prefill:
            view.believed.prefilled(self.settings, ticket.own_prefill, now - ticket.committed)
        view.believed.breaker = view.believed.breaker.succeeded(ticket.committed)
        self._learn(ticket)
        self.wake()

    def finished(self, request: Request) -> None:
        ticket = self._ticket(request)
        lane = request.job.lane
        self._outputs[lane] = _moved(self._outputs.get(lane), request.job.output)
        self.acceptance.ended()
        self.forget(ticket)
        self.wake()

    def lost(self, replica: Replica, requests: list[Request]) -> None:
        self.upkeep.lost(replica, requests)

    def joined(self, replica: Replica) -> None:
        view = self.views.get(replica.id)
        if view is None:
            view = self.views[replica.id] = ReplicaView(self.settings, replica, self.cluster.now)
        view.ready = True
        view.scrape(self.settings, self.cluster.now, self.counters(replica.id).read)
        self.index.forget(replica.id)
        self.describe(view)
        self.wake()

    # ------------------------------------------------------------------ acceptance

    @property
    def now_ms(self) -> int:
        return int(self.cluster.now * 1000)

    def _ticket(self, request: Request) -> Ticket:
        return self.tickets[f"{request.job.number:07d}"]

    def _expected_output(self, lane: str) -> int:
        return max(1, round(self._outputs.get(lane, 256.0) * self.options.estimate))

    def _match(self, request: Request) -> dict[str, Matched]:
        if not self.options.affinity:
            return {}
        blocks = (request.job.input + request.emitted) // self.cluster.profile.block
        return self.index.match(self.cluster.now, request.hashes[:blocks])

    def enqueue(self, ticket: Ticket) -> None:
        """Into the book; what was in it before keeps its rank."""
        job = ticket.request.job
        peak = max((view.believed.peak_rate for view in self.views.values()), default=1.0)
        self.book.enqueue(
            self.now_ms,
            ticket.id,
            job.lane,
            job.tenant,
            input=job.input,
            uncached=ticket.uncached,
            kv=job.input + ticket.expected_output,
            deadline=ticket.deadline,
            peak_rate=peak,
            weight=self.options.weights.get(job.tenant, 1.0),
            rank=ticket.rank or None,
            attempt=ticket.attempt,
            emitted=ticket.request.emitted,
        )
        ticket.rank = ticket.rank or self.now_ms + min(self.settings.order.aging_ms, 1000 * ticket.uncached / peak)

    def _learn(self, ticket: Ticket) -> None:
        request = ticket.request
        expected = ticket.matches.get(ticket.replica)
        if request.sequence is not None and self.options.affinity:
            blocks = request.hashes[: request.job.input // self.cluster.profile.block]
            self.index.correct(self.cluster.now, ticket.replica, blocks, expected, request.sequence.cached)
        self.acceptance.learn(ticket)

    def forget(self, ticket: Ticket) -> None:
        """Settled."""
        if self.redis_up:
            self.book.settle(self.now_ms, ticket.id, emitted=ticket.request.emitted)
        del self.tickets[ticket.id]

    # ------------------------------------------------------------------ dispatch

    def wake(self) -> None:
        """Has a runner look soon; one look serves all that happens until then."""
        if self._wake_at < self.cluster.now:
            self._wake_at = self.cluster.now + WAKE_SECONDS
            self.cluster.at(self._wake_at, self._dispatch)

    def loads(self) -> list[Load]:
        """All ready replicas."""
        now = self.cluster.now
        ready = [view for view in self.views.values() if view.ready]
        counters = self.book.peek(self.now_ms, 0, [view.replica.id for view in ready]).replicas
        pool = {view.replica.id: (view.believed.breaker, self._trying(view)) for view in ready}
        taking = usable(self.settings, pool, now)
        return [view.believed.load(counters[view.replica.id], now, usable=view.replica.id in taking) for view in ready]

    def _trying(self, view: ReplicaView) -> int:
        """Requests that were sent there since it was left out or came back."""
        breaker = view.believed.breaker
        if not breaker.trial:
            return 0
        there = (each for each in self.tickets.values() if each.running and each.replica == view.replica.id)
        return sum(each.committed > breaker.since for each in there)

    def counters(self, replica: str) -> Counters:
        return self.book.peek(self.now_ms, 0, (replica,)).replicas[replica]

    def describe(self, view: ReplicaView) -> None:
        """A runner's scrape, as the book is told."""
        self.book.describe(
            self.now_ms,
            view.replica.id,
            capn=view.believed.capn(self.settings),
            capkv=view.believed.promised(self.settings, self.cluster.now),
            peak_rate=view.believed.peak_rate,
            open=view.ready,
        )

    def _dispatch(self) -> None:
        if not self.redis_up or not self.runners:
            return
        stuck: list[Head] = []
        while self._place_one(stuck):
            stuck.clear()
        for head in stuck:
            self.audit.found_no_place(head.id)
        if stuck:
            self._make_place(stuck[0])

    def _place_one(self, stuck: list[Head]) -> bool:
        """Commits the first of the heads that can start somewhere; those before it whose turn it was are `stuck`."""
        heads = self.book.peek(self.now_ms, PEEK).heads
        loads = self.loads()
        matches = {head.id: self._share(head) for head in heads if head.turn}
        late = self.now_ms - self.settings.order.aging_ms
        ordered = (head for head in with_best_match_first(heads, matches, late) if head.turn or head.passing)
        return any(self._try(head, loads, stuck) for head in ordered)

    def _share(self, head: Head) -> float:
        ticket = self.tickets[head.id]
        if self.cluster.now - ticket.matched > MATCHES_KEPT:
            ticket.matches, ticket.matched = self._match(ticket.request), self.cluster.now
        return max((each.tokens for each in ticket.matches.values()), default=0) / head.input

    def _try(self, head: Head, loads: list[Load], stuck: list[Head]) -> bool:
        ticket = self.tickets[head.id]
        waited = self.cluster.now - ticket.request.job.at
        demand = _demand(head, waited)
        matches = {load.id: _tokens(ticket.matches, load.id) for load in loads}
        choice = choose(self.settings, demand, loads, matches, self.rng)
        hoping = HOPING * self.settings.lease.requeued_wait_seconds
        if not choice.id and head.avoid and self.cluster.now - ticket.given_back >= hoping:
            choice = choose(self.settings, replace(demand, avoid=()), loads, matches, self.rng)
        if not choice.id:
            if head.turn:
                stuck.append(head)
            return False
        self._turn += 1
        runner = self.runners[self._turn % len(self.runners)]
        committed = self.book.commit(
            self.now_ms,
            head.id,
            choice.id,
            str(runner),
            uncached=choice.uncached,
            attempt=head.attempt,
            passing=head.passing,
        )
        if not committed.attempt:
            return False
        ticket.own_prefill = choice.uncached
        self.acceptance.placed(head.lane, choice.uncached)
        self._send(ticket, choice.id, runner, committed)
        return True

    def _send(self, ticket: Ticket, replica: str, runner: int, committed: Committed) -> None:
        now, request = self.cluster.now, ticket.request
        self.audit.dispatches[request.job.lane].append(now)
        ticket.attempt, ticket.runner, ticket.replica = committed.attempt, runner, replica
        ticket.committed, ticket.running, ticket.started = now, True, False
        ticket.queued_prefill = self.counters(replica).qpf
        if ticket.attempt == 1:
            self.retries.dispatched(now, request.job.input)
        if self.options.affinity:
            blocks = request.hashes[: request.job.input // self.cluster.profile.block]
            matched = _tokens(ticket.matches, replica) // self.cluster.profile.block
            self.index.add(now, replica, checkpoint_hashes(blocks, self.settings.prefix.checkpoints, matched))
        self.cluster.send(request, self.views[replica].replica)

    def _make_place(self, head: Head) -> None:
        """Some running work ends for a request that would otherwise miss its objective; as in runner.preemption."""
        now = self.cluster.now
        seen = self.acceptance.seen
        if seen is None or now < self._preempt_from or not self.settings.lane(head.lane).preempts:
            return
        output = max(0, head.kv - head.input)
        prediction = seen.predict(self.settings, head.lane, head.input, output, ahead=0)
        prediction = replace(prediction, trusted=seen.knows(head.lane))
        waited = now - head.rank / 1000
        if not should_preempt(self.settings, head.lane, prediction, waited=waited, can_start=False):
            return
        running = [each for each in self.book.running() if self.views[each.replica].ready]
        chosen = victim(self.settings, head.lane, running)
        if chosen is not None:
            self._preempt_from = now + PREEMPTION_PAUSE
            self.book.preempt(self.now_ms, chosen.id, chosen.attempt)
            self.cluster.at(now + WAKE_SECONDS, self._give_way, chosen.id, chosen.attempt)

    def _look_for_idleness(self) -> None:
        if self.redis_up and self.runners:
            loads = self.loads()
            self.audit.look(self.book.peek(self.now_ms, PEEK), lambda head: self._would_be_taken(head, loads))
        self.cluster.at(self.cluster.now + AUDIT_SECONDS, self._look_for_idleness)

    def _would_be_taken(self, head: Head, loads: list[Load]) -> bool:
        matches, demand = self.tickets[head.id].matches, _demand(head, 0.0)
        return any(not assess(self.settings, demand, each, _tokens(matches, each.id)).refusal for each in loads)

    def _give_way(self, id: str, attempt: int) -> None:
        """Its runner is told, and gives it back."""
        ticket = self.tickets.get(id)
        if ticket is None or not ticket.running or ticket.attempt != attempt or ticket.runner not in self.runners:
            return
        self.cluster.stop(ticket.request)
        ticket.running, ticket.moved = False, True
        self.audit.preemptions += 1
        self.book.release(self.now_ms, id, attempt, emitted=ticket.request.emitted, preempted=True)
        self.wake()


def _demand(head: Head, waited: float) -> Demand:
    input = head.input + head.emitted
    return Demand(head.lane, input, max(1, head.kv - input), waited, head.avoid)


def _tokens(matches: Mapping[str, Matched], replica: str) -> int:
    found = matches.get(replica)
    return found.tokens if found else 0


def _moved(mean: float | None, value: float) -> float:
    return float(value) if mean is None else mean + 0.02 * (value - mean)
