"""Every Redis key of the room. Scripts derive theirs from the same prefixes."""

from uuid import UUID

from chatsite.redis import SCHEMA

ANY_WAKE = f"{SCHEMA}:{{m:*}}:wake"  # where schedulers announce work, free slots and cancellations
SWEEP_LOCK = f"{SCHEMA}:sweep"  # one process at a time compares PostgreSQL with Redis
RENEWAL_LOCK = f"{SCHEMA}:renewal"  # one process at a time keeps the reservations of those that wait


def scheduler(model: str, shard: int = 0) -> str:
    """Prefix of a model's scheduler: queues, leases, replicas."""
    return f"{SCHEMA}:{{m:{model}/{shard}}}"


def model_of(wake_channel: str) -> str:
    """The model whose scheduler announces on that channel."""
    return wake_channel.partition("{m:")[2].rpartition("/")[0]


def log(request_id: UUID) -> str:
    """Prefix of a request's token log and prompt."""
    return f"{SCHEMA}:{{{request_id}}}"


def prompt(request_id: UUID) -> str:
    return f"{log(request_id)}:prompt"


def out(request_id: UUID) -> str:
    return f"{log(request_id)}:out"


def missing(id_: UUID) -> str:
    """When a running request was first seen without a lease, or a process without its presence."""
    return f"{log(id_)}:missing"


def presence(process: UUID) -> str:
    """There while that process holds connections of callers."""
    return f"{SCHEMA}:present:{process}"


def held_back(organization_id: UUID, user_id: UUID, key_id: UUID | None) -> str:
    """There while no batch request of that caller is to start: see inference.held_back."""
    return f"{SCHEMA}:held-back:{organization_id}:{user_id}:{key_id or '-'}"


def shown(request_id: UUID) -> str:
    """What was shown last of a request's wait: see inference.selectors."""
    return f"{log(request_id)}:shown"


def readers(request_id: UUID) -> str:
    """Who follows a call that several may follow: see inference.readers."""
    return f"{log(request_id)}:readers"


def place(prefix: str, request_id: UUID) -> str:
    return f"{prefix}:req:{request_id}"


def waiting(prefix: str) -> str:
    """All that waits, by when its wait is over."""
    return f"{prefix}:deadline"


def replica(prefix: str, replica_id: UUID | str) -> str:
    return f"{prefix}:rep:{replica_id}"


def prefixes(prefix: str) -> str:
    """Which prompts went to which replica, for the runners' indexes."""
    return f"{prefix}:prefixes"


def pace(prefix: str) -> str:
    """How fast the model's requests end, and its replicas read."""
    return f"{prefix}:pace"


def forecast(prefix: str) -> str:
    """What a runner last saw of the queues and the replicas."""
    return f"{prefix}:lanes"


def lengths(prefix: str) -> str:
    """How many requests wait, by lane."""
    return f"{prefix}:len"


def running(prefix: str) -> str:
    """How many requests have a lease, by lane."""
    return f"{prefix}:run"


def live(prefix: str, lane: str) -> str:
    """How many requests are not settled, by tenant."""
    return f"{prefix}:live:{lane}"


def outputs(prefix: str, organization_id: UUID) -> str:
    """How long an organization's latest answers became."""
    return f"{prefix}:outputs:{organization_id}"
