"""What runners and the sweep do each second, and what they do when something dies: the other half of `scheduler`."""

from typing import TYPE_CHECKING

from benchmarks.simulator.cluster import EXPIRED, FAILED, Replica, Request
from inference.scheduling.answers import Answer, Outcome, Released, State
from inference.scheduling.book import Book
from inference.scheduling.routing import ejected, time_limits

if TYPE_CHECKING:
    from benchmarks.simulator.scheduler import Scheduler
    from benchmarks.simulator.tickets import Ticket

RETRY_SECONDS = 1.0


class Upkeep:
    """Works on a scheduler's state. All times in simulated seconds."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler = scheduler
        self.cluster = scheduler.cluster
        self._orphans: dict[str, float] = {}  # id -> when its runner died
        self.cluster.at(self.cluster.now + scheduler.settings.lease.heartbeat_seconds, self._tick)

    def _tick(self) -> None:
        own = self.scheduler
        for runner in own.runners:
            self._time_out_prefills(runner)
            if own.redis_up:
                self._heartbeat(runner)
        for view in own.views.values():
            if view.ready:
                view.scrape(own.settings, self.cluster.now, own.counters(view.replica.id).read if own.redis_up else 0)
        breakers = {id: view.believed.breaker for id, view in own.views.items() if view.ready}
        for id, breaker in ejected(own.settings, breakers, self.cluster.now).items():
            own.views[id].believed.breaker = breaker
        if own.redis_up:
            for view in own.views.values():
                own.describe(view)
            self._reap()
            own.acceptance.look()
            own.wake()
        self.cluster.at(self.cluster.now + own.settings.lease.heartbeat_seconds, self._tick)

    def _held(self, runner: int) -> list["Ticket"]:
        return [ticket for ticket in self.scheduler.tickets.values() if ticket.running and ticket.runner == runner]

    def _heartbeat(self, runner: int) -> None:
        own = self.scheduler
        held = self._held(runner)
        answers = own.book.heartbeat(own.now_ms, [(each.id, each.attempt, each.request.tokens()) for each in held])
        for ticket, answer in zip(held, answers, strict=True):
            if answer is Answer.UNKNOWN:
                self.reopen(ticket)
            elif answer is Answer.STALE:  # somebody else has it: a fenced runner stops
                self.cluster.stop(ticket.request)
                ticket.running = False

    def _reap(self) -> None:
        own = self.scheduler
        for id, outcome in own.book.reap(own.now_ms):
            ticket = own.tickets[id]
            own.cluster.end(ticket.request, EXPIRED if outcome is Outcome.EXPIRED else FAILED)
            own.forget(ticket)
        for id, died in list(self._orphans.items()):
            ticket = own.tickets.get(id)
            waits = own.book.place(id).state is State.QUEUED
            if ticket is None or waits or ticket.runner in own.runners:
                del self._orphans[id]
                own.audit.reclaimed.append(self.cluster.now - died)
            if ticket is not None and waits:
                ticket.running = False

    def _time_out_prefills(self, runner: int) -> None:
        """An attempt without a first token for too long has failed."""
        own = self.scheduler
        for ticket in self._held(runner):
            believed = own.views[ticket.replica].believed
            predicted = ticket.queued_prefill / (believed.peak_rate * believed.health)
            limit, _ = time_limits(own.settings, predicted, believed.peak_rate)
            silent = ticket.request.sequence is not None and not ticket.started
            if silent and self.cluster.now - ticket.committed > limit:
                self.cluster.stop(ticket.request)
                self._failed(ticket)

    def _failed(self, ticket: "Ticket") -> None:
        own = self.scheduler
        believed = own.views[ticket.replica].believed
        believed.breaker = believed.breaker.failed(ticket.committed, own.cluster.now)
        self._retry(ticket)

    def _retry(self, ticket: "Ticket") -> None:
        """Back into the queue; beyond the budget of retries, or without Redis, a second later."""
        own = self.scheduler
        request = ticket.request
        ticket.moved = True
        if ticket.id not in own.tickets or ticket.runner not in own.runners:
            return
        if not own.redis_up or not own.retries.take(self.cluster.now, request.job.input + request.emitted):
            self.cluster.at(self.cluster.now + RETRY_SECONDS, self._retry, ticket)
            return
        ticket.running, ticket.given_back = False, self.cluster.now
        released = own.book.release(
            own.now_ms, ticket.id, ticket.attempt, emitted=request.emitted, failed=True, avoid=ticket.replica
        )
        if released is Released.FAILED:
            self._give_up(ticket)
        own.wake()

    def _give_up(self, ticket: "Ticket") -> None:
        self.cluster.end(ticket.request, FAILED)
        self.scheduler.forget(ticket)

    def lost(self, replica: Replica, requests: list[Request]) -> None:
        """Connections broke. Probes will say that the replica is down."""
        own = self.scheduler
        view = own.views[replica.id]
        if view.ready and not replica.up:
            view.ready = False
            own.index.forget(replica.id)
            if own.redis_up:
                own.describe(view)
        for request in requests:
            ticket = own.tickets[f"{request.job.number:07d}"]
            if ticket.runner in own.runners:
                self._failed(ticket)

    # ------------------------------------------------------------------ faults

    def kill_runner(self, runner: int) -> None:
        """Its streams end, its leases run out, others go on."""
        own = self.scheduler
        for ticket in self._held(runner):
            self.cluster.stop(ticket.request)
            ticket.moved = True
            self._orphans[ticket.id] = self.cluster.now
        own.runners.remove(runner)

    def restart_redis(self, down_seconds: float) -> None:
        """It comes back without its data."""
        own = self.scheduler
        own.redis_up = False
        self.cluster.at(self.cluster.now + down_seconds, self._redis_is_back)

    def _redis_is_back(self) -> None:
        own = self.scheduler
        own.book = Book(own.settings)
        own.redis_up = True
        for view in own.views.values():
            own.describe(view)
        for ticket in list(own.tickets.values()):
            if ticket.running:
                self.reopen(ticket)
            else:
                own.enqueue(ticket)
        own.wake()

    def reopen(self, ticket: "Ticket") -> None:
        """Its runner still streams it."""
        own, job = self.scheduler, ticket.request.job
        own.book.reopen(
            own.now_ms,
            ticket.id,
            job.lane,
            job.tenant,
            attempt=ticket.attempt,
            replica=ticket.replica,
            runner=str(ticket.runner),
            input=job.input,
            kv=job.input + ticket.expected_output,
            emitted=ticket.request.tokens(),
            uncached=0 if ticket.started else ticket.uncached,
            deadline=ticket.deadline,
            rank=ticket.rank,
            weight=own.options.weights.get(job.tenant, 1.0),
        )
