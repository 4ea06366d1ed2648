"""What the scheduler is told of a request that is to wait."""

from datetime import datetime
from uuid import UUID

from chatsite.redis import Call
from inference.redis.scheduler import Scheduler

EXPECTED_OUTPUT = 512  # tokens, where the request allows as many; the engine's memory is promised for so much at first


def enqueue_call(
    scheduler: Scheduler,
    request_id: UUID,
    lane: str,
    tenant: UUID,
    *,
    input: int,
    max_tokens: int,
    deadline: datetime,
    rank: float | None = None,
    attempt: int = 0,
) -> Call:
    """Returns 1, or 0 when the scheduler knows the request already. `rank`: the moment (ms) that it had before."""
    return scheduler.enqueue_call(
        str(request_id),
        lane,
        str(tenant),
        input=input,
        uncached=input,
        kv=input + min(max_tokens, EXPECTED_OUTPUT),
        deadline=int(deadline.timestamp() * 1000),
        rank=rank,
        attempt=attempt,
    )
