"""What the scheduler is told of a request that is to wait."""

from datetime import datetime
from uuid import UUID

from chatsite.redis import Call
from inference.redis.scheduler import Scheduler


def enqueue_call(
    scheduler: Scheduler,
    request_id: UUID,
    lane: str,
    tenant: UUID,
    weight: float,
    *,
    input: int,
    output: int,
    deadline: datetime,
    rank: float | None = None,
    attempt: int = 0,
) -> Call:
    """Returns 1, or 0 when the scheduler knows the request already.

    `output`: tokens for which the engine's memory is promised at first. `rank`: the moment (ms) that it had before.
    """
    return scheduler.enqueue_call(
        str(request_id),
        lane,
        str(tenant),
        input=input,
        uncached=input,
        kv=input + output,
        deadline=int(deadline.timestamp() * 1000),
        weight=weight,
        rank=rank,
        attempt=attempt,
    )
