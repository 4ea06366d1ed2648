"""What the simulated product keeps of each request, what an experiment changes, and what is noted on the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.simulator.cluster import Request
from inference.scheduling.answers import Head, Peeked
from inference.scheduling.prediction import Prediction
from inference.scheduling.prefixes import Matched
from inference.scheduling.settings import LANES


@dataclass(eq=False, slots=True)
class Ticket:
    """A request as web process and runners know it."""

    request: Request
    id: str
    expected_output: int
    uncached: int
    matches: dict[str, Matched] = field(default_factory=dict)
    matched: float = 0.0  # when the matches were looked up
    prediction: Prediction | None = None
    attempt: int = 0
    runner: int = -1
    replica: str = ""
    committed: float = 0.0
    given_back: float = 0.0  # when an attempt failed
    own_prefill: int = 0  # tokens
    queued_prefill: int = 0  # tokens on the replica at commit, its own among them
    rank: float = 0.0
    deadline: int = 0
    running: bool = False
    started: bool = False  # the first token of this attempt came
    moved: bool = False  # preempted or retried: its prediction is not judged
    let_in: bool = False  # though it was to be shed, to see how it fares


@dataclass(frozen=True)
class Options:
    """What an experiment changes about the product. `estimate` multiplies the expected output."""

    affinity: bool = True
    shedding: bool = True
    control: float = 0.0  # share of those to be shed that are let in all the same, as a sample
    estimate: float = 1.0
    runners: int = 2
    weights: Mapping[str, float] = field(default_factory=dict)  # of tenants, default 1


@dataclass
class Audit:
    """What the invariants ask for."""

    predictions: list[tuple[float, float, float]] = field(default_factory=list)  # expected, p90, actual seconds
    shed: int = 0  # was to be shed
    let_in: int = 0  # of those, as a sample
    shed_in_vain: int = 0  # of the sample: met the objective
    looks: int = 0  # at whether a request waits beside a replica that would take it
    idle: int = 0  # looks at which one did that did already a look before, and whose turn it was
    held: int = 0  # the same for those that order held back behind another tenant's larger request
    held_by_own: int = 0  # and for those behind a larger one of their own tenant only
    preemptions: int = 0
    reclaimed: list[float] = field(default_factory=list)  # seconds from a runner's death until it waits again
    dispatches: dict[str, list[float]] = field(default_factory=lambda: {lane: [] for lane in LANES})
    _waited: dict[str, str] = field(default_factory=dict)  # at the last look: why, by id

    def look(self, peeked: Peeked, would_be_taken: Callable[[Head], bool]) -> None:
        """Counts requests that a replica would take and that no lane is waited for, at this look and the one before."""
        waiting: dict[str, str] = {}  # its turn is there, or it stands behind its own tenant's, or another's
        firsts: dict[tuple[str, str], str] = {}
        for head in peeked.heads:
            own = firsts.setdefault((head.lane, head.tenant), head.id) != head.id
            if peeked.waited_for in ("", head.lane) and would_be_taken(head):
                waiting[head.id] = "turn" if head.turn else "own" if own else "other"
        both = [(self._waited[id], why) for id, why in waiting.items() if id in self._waited]
        self.looks += 1
        if ("turn", "turn") in both:
            self.idle += 1
        elif any("other" in pair for pair in both):
            self.held += 1
        elif both:
            self.held_by_own += 1
        self._waited = waiting

    def found_no_place(self, id: str) -> None:
        """A runner has looked: whatever it waits for now is a new wait."""
        self._waited.pop(id, None)
