"""Simulated time, the replicas in it, and the requests that a policy sends to them."""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.simulator.engine import Engine, Sequence
from benchmarks.simulator.profiles import Profile
from benchmarks.simulator.workloads import Job

DONE, SHED, EXPIRED, FAILED = "done", "shed", "expired", "failed"


@dataclass(eq=False, slots=True)
class Request:
    """A job on its way. Times in simulated seconds, infinite until they happen; `outcome` is empty before its end."""

    job: Job
    hashes: list[int]
    sent: float = math.inf  # to an engine, the first time
    first: float = math.inf
    finished: float = math.inf
    outcome: str = ""
    emitted: int = 0  # tokens that earlier attempts put out
    attempts: int = 0
    cached: int = 0  # prompt tokens that the engine had, in the first attempt
    replica: "Replica | None" = None
    sequence: Sequence | None = None

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.first - self.job.at

    def tokens(self) -> int:
        """Tokens put out so far, over all attempts."""
        if self.replica is None or self.sequence is None:
            return self.emitted
        return self.emitted + self.replica.engine.progress(self.sequence)


@dataclass(eq=False)
class Replica:
    """An engine with its faults. `slow` multiplies the duration of steps; `frozen` metrics do not change any more."""

    id: str
    engine: Engine
    up: bool = True
    slow: float = 1.0
    frozen: bool = False
    epoch: int = 0  # a step that ends in another epoch is of an engine that was killed
    holding: dict[Sequence, Request] = field(default_factory=dict)
    busy_seconds: float = 0.0


class Policy(Protocol):
    """Decides where requests go. Every method may send."""

    def start(self, cluster: "Cluster") -> None: ...

    def arrive(self, request: Request) -> None: ...

    def first_token(self, request: Request) -> None: ...

    def finished(self, request: Request) -> None: ...

    def lost(self, replica: Replica, requests: list[Request]) -> None:
        """The replica died under these; `request.emitted` has what they put out."""

    def joined(self, replica: Replica) -> None:
        """A replica came up, for the first time or again."""


class Cluster:
    """The world of one run."""

    def __init__(self, profile: Profile, replicas: int, policy: Policy, jobs: Iterable[Job]) -> None:
        self.profile = profile
        self.now = 0.0
        self.replicas = [Replica(f"r{number}", Engine(profile)) for number in range(replicas)]
        self.requests = [Request(job, job.hashes(profile.block)) for job in jobs]
        self.policy = policy
        self.observers: list[Callable[[], None]] = []  # called every second
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._started = False

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Has something happen; what is due at the same moment happens in the order of these calls."""
        self._order += 1
        heapq.heappush(self._events, (max(when, self.now), self._order, action, arguments))

    def run(self, until: float) -> None:
        """Lets time pass. Arrivals enter in the first call."""
        if not self._started:
            self._started = True
            self.policy.start(self)
            self.at(0.0, self._observe)
            for request in self.requests:
                self.at(request.job.at, self.policy.arrive, request)
        while self._events and self._events[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)
        self.now = until

    def _observe(self) -> None:
        for observer in self.observers:
            observer()
        self.at(self.now + 1.0, self._observe)

    def send(self, request: Request, replica: Replica) -> None:
        """To the engine, which knows of it a moment later. What earlier attempts put out becomes prompt."""
        job = request.job
        request.attempts += 1
        request.sent = min(request.sent, self.now)
        if not replica.up:
            self.at(self.now, self.policy.lost, replica, [request])
            return
        request.replica = replica
        request.sequence = Sequence(job.input + request.emitted, job.output - request.emitted, request.hashes)
        replica.holding[request.sequence] = request
        self.at(self.now + self.profile.request_seconds, self._submit, replica, request.sequence)

    def _submit(self, replica: Replica, sequence: Sequence) -> None:
        if sequence in replica.holding:  # neither stopped nor lost meanwhile
            replica.engine.submit(sequence)
            self._step(replica)

    def stop(self, request: Request) -> None:
        """Closes the request's response: the engine drops it, its tokens so far are kept."""
        replica, sequence = request.replica, request.sequence
        if replica is None or sequence is None:
            return
        request.emitted = request.tokens()
        request.replica = request.sequence = None
        del replica.holding[sequence]
        replica.engine.abort(sequence)

    def end(self, request: Request, outcome: str) -> None:
        """For requests that a policy does not serve (any further)."""
        self.stop(request)
        request.outcome, request.finished = outcome, self.now

    def _step(self, replica: Replica) -> None:
        if replica.engine.busy or not replica.up:
            return
        seconds = replica.engine.begin()
        if seconds is not None:
            replica.busy_seconds += seconds
            self.at(self.now + seconds * replica.slow, self._stepped, replica, replica.epoch)

    def _stepped(self, replica: Replica, epoch: int) -> None:
        if replica.epoch != epoch:
            return
        result = replica.engine.end()
        for sequence in result.first:
            request = replica.holding[sequence]
            if request.first == math.inf:
                request.first = self.now
                request.cached = sequence.cached
            self.policy.first_token(request)
        for sequence in result.finished:
            request = replica.holding.pop(sequence)
            request.emitted += sequence.emitted
            request.replica = request.sequence = None
            request.outcome, request.finished = DONE, self.now
            self.policy.finished(request)
        self._step(replica)

    def kill(self, replica: Replica, back_after: float) -> None:
        """All connections break, memory is gone; another engine is there after some seconds."""
        lost = list(replica.holding.values())
        for request in lost:
            request.emitted = request.tokens()
            request.replica = request.sequence = None
        replica.up = False
        replica.epoch += 1
        replica.holding = {}
        replica.engine = Engine(self.profile)
        self.at(self.now + back_after, self._back, replica)
        self.policy.lost(replica, lost)

    def _back(self, replica: Replica) -> None:
        replica.up = True
        self.policy.joined(replica)

    def add_replica(self) -> None:
        """One more, empty."""
        replica = Replica(f"r{len(self.replicas)}", Engine(self.profile))
        self.replicas.append(replica)
        self.policy.joined(replica)
