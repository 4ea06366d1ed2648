"""The product's scheduling rules as a policy of the simulator: what web process and runners do, without their I/O.

Acceptance predicts and admits, runners peek, choose and commit, heartbeats charge, scrapes inform: all by the code in
inference/scheduling. Only the plumbing is here and in `upkeep`.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.simulator.cluster import SHED, Cluster, Replica, Request
from benchmarks.simulator.replica_view import ReplicaView
from benchmarks.simulator.tickets import Audit, Options, Ticket
from benchmarks.simulator.upkeep import Upkeep
from inference.scheduling.admission import Action, RetryBudget, admit, is_in_time, should_preempt, victim
from inference.scheduling.answers import Committed, Counters, Head
from inference.scheduling.book import Book
from inference.scheduling.outlook import Counted, Place, View
from inference.scheduling.prediction import Order, Predictor
from inference.scheduling.prefixes import Matched, PrefixIndex, checkpoint_hashes
from inference.scheduling.routing import HOPING, Demand, Load, assess, choose, usable, with_best_match_first
from inference.scheduling.settings import LANES, SchedulerSettings

PEEK = 8  # heads of each lane
WAKE_SECONDS = 0.002  # from an event until a runner has looked
MATCHES_KEPT = 0.25  # seconds
PREEMPTION_PAUSE = 0.2  # seconds after a victim was told
NO_DEADLINE = 10**12
AUDIT_SECONDS = 0.05
MEAN_ALPHA = 0.1
COUNTERS_SECONDS = 0.05


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
        self.predictors = {lane: Predictor(self.settings.prediction) for lane in LANES}
        self.orders = {lane: Order() for lane in LANES}
        self.retries = RetryBudget(self.settings.admission)
        self.runners = list(range(self.options.runners))
        self.redis_up = True
        self.seen: View | None = None
        self.let_in: Counter[str] = Counter()  # since that was seen, by lane
        self.let_in_of: Counter[tuple[str, str]] = Counter()  # by lane and tenant
        self._ended_at = self._gap = 0.0  # seconds; between two ends, a moving average
        self._outputs: dict[str, float] = {}
        self._uncached = dict.fromkeys(LANES, 0.0)
        self._wake_at = self._looked_at = -1.0
        self._preempt_from = 0.0
        self._turn = 0

    # ------------------------------------------------------------------ events of the cluster

    def start(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.index = PrefixIndex(self.settings.prefix, cluster.profile.block)
        self.upkeep = Upkeep(self)
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
        if not self._admitted(ticket):
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
        gap = self.cluster.now - self._ended_at
        self._gap, self._ended_at = 0.9 * (self._gap or gap) + 0.1 * gap, self.cluster.now
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

    def _admitted(self, ticket: Ticket) -> bool:
        """By what was seen at the last tick, as in inference.admission."""
        job = ticket.request.job
        if self.seen is None:
            return True
        self._look_again()
        since = self.let_in[job.lane]
        waiting = self.seen.waiting[job.lane] + since
        ahead: float = since
        if self.seen.waiting[job.lane]:
            before, order = self._before_next(job.lane, job.tenant), self.orders[job.lane]
            order.came(before, waiting)
            ahead = order.served_before(min(before, waiting), waiting)
        ticket.prediction = self.seen.predict(self.settings, job.lane, job.input, ticket.expected_output, ahead)
        spared = self.seen.in_its_share(self.settings, job.lane)
        admission = admit(self.settings, job.lane, ticket.prediction, waiting, self.rng, in_its_share=spared)
        taken = self.seen.takes(self.settings, job.lane, job.input, ticket.expected_output, since)
        taken = taken or self._is_modest(ticket, waiting)
        if self.options.shedding and admission.action is Action.SHED and not taken:
            self.audit.shed += 1
            ticket.let_in = self.rng.random() < self.options.control
            self.audit.let_in += ticket.let_in
            if not ticket.let_in:
                return False
        self.let_in[job.lane] += 1
        self.let_in_of[job.lane, job.tenant] += 1
        return True

    def _is_modest(self, ticket: Ticket, waiting: int) -> bool:
        job, prediction, seen = ticket.request.job, ticket.prediction, self.seen
        if prediction is None or seen is None or waiting >= self.settings.admission.queue_cap:
            return False
        own = self.book.under_way(job.lane, job.tenant)
        tenants = self.book.tenants(job.lane) + (not own)
        own += self.let_in_of[job.lane, job.tenant]
        modest = not own or seen.in_its_part(job.lane, own + 1, tenants)
        return modest and is_in_time(self.settings, job.lane, prediction)

    def _before_next(self, lane: str, tenant: str) -> int:
        return self.book.before_next(self.now_ms, lane, tenant, self.let_in_of[lane, tenant])

    def _look_again(self) -> None:
        """Acceptance reads counters and lengths itself, as in inference.forecast."""
        if self.seen is None or self.cluster.now - self._looked_at < COUNTERS_SECONDS:
            return
        self._looked_at = self.cluster.now
        counters = self.book.peek(self.now_ms, 0, [place.id for place in self.seen.places]).replicas
        held = {id: Counted(each.qpf, each.kv, each.n) for id, each in counters.items()}
        self.seen = self.seen.with_counters(self.book.waiting(), self.book.running_by_lane(), held)
        self._nobody_let_in()

    def look(self) -> None:
        """Once a second: what a runner tells all processes."""
        loads = [load for load in self.loads() if load.usable]
        longest = max(self._gap, self.cluster.now - self._ended_at)
        self.seen = View(
            waiting=self.book.waiting(),
            uncached=dict(self._uncached),
            learned={lane: predictor.learned for lane, predictor in self.predictors.items()},
            places=[Place.of(load) for load in loads],
            ends=1 / longest if self._gap else 0.0,
            running=self.book.running_by_lane(),
        )
        self._nobody_let_in()

    def _nobody_let_in(self) -> None:
        self.let_in.clear()
        self.let_in_of.clear()

    def _learn(self, ticket: Ticket) -> None:
        request = ticket.request
        expected = ticket.matches.get(ticket.replica)
        if request.sequence is not None and self.options.affinity:
            blocks = request.hashes[: request.job.input // self.cluster.profile.block]
            self.index.correct(self.cluster.now, ticket.replica, blocks, expected, request.sequence.cached)
        if ticket.prediction is None or ticket.moved:
            return
        actual = self.cluster.now - request.job.at
        objective = self.settings.lane(request.job.lane).objective_seconds
        if ticket.prediction.trusted:
            self.audit.predictions.append((ticket.prediction.expected, ticket.prediction.p90, actual))
            self.audit.shed_in_vain += ticket.let_in and objective is not None and actual <= objective
        self.predictors[request.job.lane].observe(ticket.prediction, actual, self.cluster.now)

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
        mean = self._uncached[head.lane]
        self._uncached[head.lane] = mean + MEAN_ALPHA * (choice.uncached - mean) if mean else float(choice.uncached)
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
        if self.seen is None or now < self._preempt_from or not self.settings.lane(head.lane).preempts:
            return
        output = max(0, head.kv - head.input)
        prediction = self.seen.predict(self.settings, head.lane, head.input, output, ahead=0)
        prediction = replace(prediction, trusted=self.seen.knows(head.lane))
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
