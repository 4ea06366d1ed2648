"""Who is let in, by what was seen at the last tick and is counted since, as in inference.admission and forecast."""

from collections import Counter
from typing import TYPE_CHECKING

from inference.scheduling.admission import Action, admit, is_in_time
from inference.scheduling.book import Book
from inference.scheduling.outlook import Counted, Place, View
from inference.scheduling.prediction import Order, Predictor
from inference.scheduling.settings import LANES

if TYPE_CHECKING:
    from benchmarks.simulator.scheduler import Scheduler
    from benchmarks.simulator.tickets import Ticket

MEAN_ALPHA = 0.1
COUNTERS_SECONDS = 0.05


class Acceptance:
    """Works on a scheduler's state. All times in simulated seconds."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler, self.cluster = scheduler, scheduler.cluster
        self.settings, self.options = scheduler.settings, scheduler.options
        self.seen: View | None = None
        self._predictors = {lane: Predictor(self.settings.prediction) for lane in LANES}
        self._orders = {lane: Order() for lane in LANES}
        self._let_in: Counter[str] = Counter()  # since that was seen, by lane
        self._let_in_of: Counter[tuple[str, str]] = Counter()  # by lane and tenant
        self._ended_at = self._gap = 0.0  # seconds; between two ends, a moving average
        self._uncached = dict.fromkeys(LANES, 0.0)
        self._looked_at = -1.0

    @property
    def book(self) -> Book:
        """Another one after Redis lost its data."""
        return self.scheduler.book

    # ------------------------------------------------------------------ letting in

    def admits(self, ticket: "Ticket") -> bool:
        job, audit = ticket.request.job, self.scheduler.audit
        if self.seen is None:
            return True
        self._look_again()
        since = self._let_in[job.lane]
        waiting = self.seen.waiting[job.lane] + since
        ahead = self._ahead(job.lane, job.tenant, waiting) if self.seen.waiting[job.lane] else since
        ticket.prediction = self.seen.predict(self.settings, job.lane, job.input, ticket.expected_output, ahead)
        spared = self.seen.in_its_share(self.settings, job.lane)
        admission = admit(self.settings, job.lane, ticket.prediction, waiting, self.scheduler.rng, in_its_share=spared)
        taken = self.seen.takes(self.settings, job.lane, job.input, ticket.expected_output, since)
        taken = taken or self._is_modest(ticket, waiting)
        if self.options.shedding and admission.action is Action.SHED and not taken:
            audit.shed += 1
            ticket.let_in = self.scheduler.rng.random() < self.options.control
            audit.let_in += ticket.let_in
            if not ticket.let_in:
                return False
        self._let_in[job.lane] += 1
        self._let_in_of[job.lane, job.tenant] += 1
        return True

    def _ahead(self, lane: str, tenant: str, waiting: int) -> float:
        """Requests that are served before one that comes now."""
        order, coming = self._orders[lane], self._let_in_of[lane, tenant]
        before = self.book.before_next(self.scheduler.now_ms, lane, tenant, coming)
        order.came(before, waiting)
        return order.served_before(min(before, waiting), waiting)

    def _is_modest(self, ticket: "Ticket", waiting: int) -> bool:
        job, prediction, seen = ticket.request.job, ticket.prediction, self.seen
        if prediction is None or seen is None or waiting >= self.settings.admission.queue_cap:
            return False
        own = self.book.under_way(job.lane, job.tenant)
        tenants = self.book.tenants(job.lane) + (not own)
        own += self._let_in_of[job.lane, job.tenant]
        modest = not own or seen.in_its_part(job.lane, own + 1, tenants)
        return modest and is_in_time(self.settings, job.lane, prediction)

    # ------------------------------------------------------------------ what it goes by

    def look(self) -> None:
        """Once a second: what a runner tells all processes."""
        loads = [load for load in self.scheduler.loads() if load.usable]
        longest = max(self._gap, self.cluster.now - self._ended_at)
        self.seen = View(
            waiting=self.book.waiting(),
            uncached=dict(self._uncached),
            learned={lane: predictor.learned for lane, predictor in self._predictors.items()},
            places=[Place.of(load) for load in loads],
            ends=1 / longest if self._gap else 0.0,
            running=self.book.running_by_lane(),
        )
        self._nobody_let_in()

    def _look_again(self) -> None:
        """Acceptance reads counters and lengths itself."""
        if self.seen is None or self.cluster.now - self._looked_at < COUNTERS_SECONDS:
            return
        self._looked_at = self.cluster.now
        counters = self.book.peek(self.scheduler.now_ms, 0, [place.id for place in self.seen.places]).replicas
        held = {id: Counted(each.qpf, each.kv, each.n) for id, each in counters.items()}
        self.seen = self.seen.with_counters(self.book.waiting(), self.book.running_by_lane(), held)
        self._nobody_let_in()

    def _nobody_let_in(self) -> None:
        self._let_in.clear()
        self._let_in_of.clear()

    def placed(self, lane: str, uncached: int) -> None:
        """A request of the lane was given to a replica, which has to prefill so many tokens of it."""
        mean = self._uncached[lane]
        self._uncached[lane] = mean + MEAN_ALPHA * (uncached - mean) if mean else float(uncached)

    def ended(self) -> None:
        """A request has ended: its place is free."""
        gap = self.cluster.now - self._ended_at
        self._gap, self._ended_at = 0.9 * (self._gap or gap) + 0.1 * gap, self.cluster.now

    def learn(self, ticket: "Ticket") -> None:
        """It has its first token."""
        if ticket.prediction is None or ticket.moved:
            return
        job, audit = ticket.request.job, self.scheduler.audit
        actual, objective = self.cluster.now - job.at, self.settings.lane(job.lane).objective_seconds
        if ticket.prediction.trusted:
            audit.predictions.append((ticket.prediction.expected, ticket.prediction.p90, actual))
            audit.shed_in_vain += ticket.let_in and objective is not None and actual <= objective
        self._predictors[job.lane].observe(ticket.prediction, actual, self.cluster.now)
