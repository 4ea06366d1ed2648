"""What runs where: leases, and on each replica the counters that are always the sum of them."""

from dataclasses import dataclass

from inference.scheduling.answers import Counters, Head, Outcome, Running, State
from inference.scheduling.backlog import Ranked


@dataclass(slots=True)
class Replica:
    """See `Counters`, which is its frozen form."""

    qpf: int = 0
    kv: int = 0
    n: int = 0
    capkv: int = 0
    capn: int = 0
    peak_rate: float = 0.0
    open: bool = False
    read: int = 0

    def counters(self) -> Counters:
        return Counters(self.qpf, self.kv, self.n, self.capkv, self.capn, self.peak_rate, self.open, self.read)


@dataclass(slots=True)
class Request:
    """All that the book knows of a request."""

    id: str
    lane: str
    tenant: str
    input: int
    uncached: int
    kv: int
    deadline: int
    rank: float
    attempt: int
    emitted: int
    state: State = State.QUEUED
    failures: int = 0
    preemptions: int = 0
    avoid: tuple[str, ...] = ()
    cancelled: bool = False
    preempted: bool = False
    outcome: Outcome | None = None
    # While it runs:
    replica: str = ""
    runner: str = ""
    expiry: int = 0
    committed_at: int = 0
    prefilled: bool = False
    held_qpf: int = 0
    held_kv: int = 0
    held_read: int = 0
    emitted_before: int = 0  # by earlier attempts

    @property
    def ranked(self) -> Ranked:
        return (self.rank, self.id)

    @property
    def context(self) -> int:
        """Tokens of KV that it needs, as far as is known."""
        return max(self.kv, self.input + self.emitted)

    def held_by(self, attempt: int) -> bool:
        return self.state is State.RUNNING and self.attempt == attempt

    def head(self, turn: bool, passing: bool, lead: int) -> Head:
        return Head(
            id=self.id,
            lane=self.lane,
            tenant=self.tenant,
            input=self.input,
            uncached=self.uncached,
            kv=self.context,
            attempt=self.attempt,
            emitted=self.emitted,
            preemptions=self.preemptions,
            rank=self.rank,
            deadline=self.deadline,
            avoid=self.avoid,
            turn=turn,
            failures=self.failures,
            passing=passing,
            lead=lead,
        )

    def running(self) -> Running:
        return Running(
            id=self.id,
            lane=self.lane,
            tenant=self.tenant,
            attempt=self.attempt,
            replica=self.replica,
            runner=self.runner,
            expiry=self.expiry,
            committed_at=self.committed_at,
            qpf=self.held_qpf,
            kv=self.held_kv,
            emitted=self.emitted,
            preemptions=self.preemptions,
            first_token=self.prefilled or self.emitted > 0,
            read=self.held_read,
        )


class Ledger:
    """Leases and replica counters, changed together."""

    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}
        self.leased: dict[str, Request] = {}

    def replica(self, id: str) -> Replica:
        """The one of that id; one that was never described takes no requests."""
        return self.replicas.setdefault(id, Replica())

    def counters(self, id: str) -> Counters:
        return self.replicas[id].counters() if id in self.replicas else Counters()

    def hold(self, request: Request, replica: str, runner: str, uncached: int, expiry: int, now: int) -> None:
        """The lease, and what it takes of the replica."""
        request.state, request.replica, request.runner = State.RUNNING, replica, runner
        request.committed_at, request.expiry, request.prefilled = now, expiry, False
        request.emitted_before, request.held_qpf, request.held_kv = request.emitted, uncached, request.context
        counters = self.replica(replica)
        counters.qpf += request.held_qpf
        counters.kv += request.held_kv
        counters.n += 1
        self.leased[request.id] = request

    def prefilled(self, request: Request) -> None:
        """Its qpf is given back, its prompt is read; again is nothing."""
        if request.prefilled:
            return
        counters = self.replicas[request.replica]
        counters.qpf -= request.held_qpf
        counters.read += request.input
        request.held_qpf, request.held_read, request.prefilled = 0, request.input, True

    def grow(self, request: Request) -> None:
        """Its context may have outgrown what was reserved for it."""
        grown = max(0, request.context - request.held_kv)
        request.held_kv += grown
        self.replicas[request.replica].kv += grown

    def give_back(self, request: Request) -> None:
        """Lease and counts end."""
        self.prefilled(request)
        counters = self.replicas[request.replica]
        counters.kv -= request.held_kv
        counters.read -= request.held_read
        counters.n -= 1
        request.held_kv = request.held_read = 0
        request.replica = request.runner = ""
        del self.leased[request.id]
