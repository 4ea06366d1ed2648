"""What the book's operations answer: plain values, as a Redis script could return them."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"  # decided here, kept until PostgreSQL has it and `settle` forgets it
    UNKNOWN = "unknown"


class Answer(StrEnum):
    """What an operation on a running request is told."""

    OK = "ok"
    CANCELLED = "cancelled"  # renewed, but somebody asked to stop it
    PREEMPTED = "preempted"  # renewed, but its place is wanted: release it with `preempted`
    STALE = "stale"  # this attempt no longer holds it
    UNKNOWN = "unknown"  # not in the book at all: Redis lost it


class Outcome(StrEnum):
    """How a request ended here."""

    CANCELLED = "cancelled"
    FAILED = "failed"  # too many attempts
    EXPIRED = "expired"  # waited too long


class Refusal(StrEnum):
    """Why `commit` did not place a request."""

    NONE = ""
    GONE = "gone"  # it does not wait (any more)
    TURN = "turn"  # not at the head, or a tenant or lane that trails goes first
    REPLICA = "replica"  # unknown, or takes no requests
    SLOTS = "slots"
    KV = "kv"
    GATE = "gate"


class Released(StrEnum):
    """What became of a request that its runner gave back."""

    QUEUED = "queued"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STALE = "stale"  # the attempt did not hold it


@dataclass(frozen=True, slots=True)
class Head:
    """A request that waits, as `peek` shows it.

    `uncached` is the estimate it came with; `attempt` counts the attempts so far; `kv` is the context in tokens that
    it may reach (input and expected output). `turn`: as far as order goes, `commit` would take it now. `passing`: it
    would if those whose turn it is find no place. `rank`, in ms, orders a tenant's requests. `failures` counts the
    attempts that count against it, `avoid` are the replicas that failed it. `lead`: wtok by which its tenant is ahead
    of the lane's least served one (of those that wait); 0 while the lane waits for another.
    """

    id: str
    lane: str
    tenant: str
    input: int
    uncached: int
    kv: int
    attempt: int
    emitted: int
    preemptions: int
    rank: float
    deadline: int
    avoid: tuple[str, ...]
    turn: bool
    failures: int = 0
    passing: bool = False
    lead: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """What is on a replica (`qpf`, `kv` in tokens, `n` requests), and what it was said to hold.

    `capkv` 0 is not known, and no limit. `read`: tokens of the prompts that have their first token there, what they
    have in common counted for each.
    """

    qpf: int = 0
    kv: int = 0
    n: int = 0
    capkv: int = 0
    capn: int = 0
    peak_rate: float = 0.0  # tokens/s of prefill
    open: bool = False  # takes new requests
    read: int = 0


@dataclass(frozen=True, slots=True)
class Peeked:
    """The heads in the order in which they should be tried, and the counters of the replicas asked for.

    `waited_for` is the lane that trails so far that some other lane may not be served before it ("" none).
    """

    heads: tuple[Head, ...]
    replicas: dict[str, Counters]
    waited_for: str


@dataclass(frozen=True, slots=True)
class Committed:
    """`attempt` is the number of the attempt that now holds the request, 0 when it was refused."""

    attempt: int
    refusal: Refusal = Refusal.NONE


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands: `ahead` is how many of its lane are served before it under the current order."""

    state: State
    lane: str = ""
    ahead: int = 0
    waiting: int = 0  # requests that wait in the lane


@dataclass(frozen=True, slots=True)
class Running:
    """A live lease, for choosing whom to preempt and for checks. `first_token`: of the request, in any attempt."""

    id: str
    lane: str
    tenant: str
    attempt: int
    replica: str
    runner: str
    expiry: int
    committed_at: int
    qpf: int
    kv: int
    emitted: int
    preemptions: int
    first_token: bool
    read: int = 0
