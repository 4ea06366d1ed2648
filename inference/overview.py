"""What an operator wants to see at a glance: today's requests, the latest failures, what serves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Q, Sum
from django.utils import timezone

from chatsite.admin_filters import made_since
from chatsite.redis import sync_client
from inference.models import Model, Replica, Request, RequestStatus
from inference.redis import keys
from inference.replicas import ReplicaState, published_states_now

MOST_COUNTED = 100_000  # requests; a busier day is counted from its newest
MOST_FAILURES = 8
UNKNOWN = "unknown"
FAILURES = (RequestStatus.FAILED, RequestStatus.EXPIRED, RequestStatus.SHED)


@dataclass(frozen=True)
class StatusCount:
    """Requests of one state. `percent` of all, for a bar."""

    status: str
    label: str
    requests: int
    percent: float


@dataclass(frozen=True)
class Overview:
    """The requests of the past 24 hours. Tokens are those that were billed."""

    statuses: list[StatusCount]
    requests: int
    capped: bool
    input: int
    cached: int
    output: int
    failures: list[Request]
    since: datetime


@dataclass(frozen=True)
class ServedReplica:
    id: UUID
    url: str
    state: str  # ready, loading, down, or unknown when no runner says


@dataclass(frozen=True)
class Serving:
    """A model with what waits for it, by lane, and its replicas."""

    name: str
    title: str
    waiting: int
    replicas: list[ServedReplica] = field(default_factory=list)

    @property
    def ready(self) -> int:
        return sum(replica.state == ReplicaState.READY for replica in self.replicas)


def load(now: datetime | None = None) -> Overview:
    """Two queries, on at most MOST_COUNTED rows."""
    since = (now or timezone.now()) - timedelta(hours=24)
    newest = made_since(Request.objects.all(), since).order_by("-id")[:MOST_COUNTED]
    rows = Request.objects.filter(id__in=newest.values("id"))
    finished = Q(finished_at__isnull=False)
    found = list(
        rows.values("status").annotate(
            requests=Count("id"),
            input=Sum("prompt_tokens", filter=finished & Q(output_tokens__gt=0), default=0),
            cached=Sum("cached_tokens", default=0),
            output=Sum("output_tokens", default=0),
        )
    )
    total = sum(row["requests"] for row in found)
    counts = {row["status"]: row["requests"] for row in found}
    return Overview(
        statuses=[_count(status, counts[status], total) for status in RequestStatus if status in counts],
        requests=total,
        capped=total >= MOST_COUNTED,
        input=sum(row["input"] for row in found),
        cached=sum(row["cached"] for row in found),
        output=sum(row["output"] for row in found),
        failures=_failures(since),
        since=since,
    )


def _count(status: RequestStatus, requests: int, total: int) -> StatusCount:
    return StatusCount(status.value, str(status.label), requests, round(100 * requests / total, 2))


def _failures(since: datetime) -> list[Request]:
    rows = made_since(Request.objects.filter(status__in=FAILURES), since).select_related("model", "organization")
    return list(rows.order_by("-id")[:MOST_FAILURES])


def load_serving() -> list[Serving]:
    """Enabled models in the order of menus. Raises RedisError."""
    models = list(Model.objects.filter(enabled=True).prefetch_related("replicas"))
    with sync_client().pipeline(transaction=False) as pipe:
        for model in models:
            pipe.zcard(keys.waiting(keys.scheduler(model.name)))
        lengths = pipe.execute()
    found = []
    for model, waiting in zip(models, lengths, strict=True):
        replicas = [row for row in model.replicas.all() if row.enabled]
        states = states_of(replicas)
        served = [ServedReplica(row.id, row.url, states[row.id]) for row in replicas]
        found.append(Serving(model.name, str(model), waiting, served))
    return found


def states_of(replicas: list[Replica]) -> dict[UUID, str]:
    """What the runners last said of each replica: ready, loading, down or unknown. Raises RedisError."""
    states = published_states_now(sync_client(), replicas)
    return {row.id: state.value if state else UNKNOWN for row, state in zip(replicas, states, strict=True)}
