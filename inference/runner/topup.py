"""Reservations of what a runner streams: kept alive, and topped up with the tokens that a reply turns out to need."""

from collections.abc import Iterable

import structlog
from redis.asyncio import Redis

from chatsite.redis import run_pipeline
from inference.redis import rules
from inference.runner.stream import Interruption, Stream
from quotas.services import refused, renew_calls

log = structlog.get_logger(__name__)


async def renew(client: Redis, streams: Iterable[Stream]) -> None:
    """One round trip for all. Where no more is left for a reply, it ends with what it has. Raises RedisError."""
    ours, used, whose = {}, {}, []
    for stream in streams:
        if stream.request is not None:  # else it is not certain to be ours
            ours[stream.id] = stream
            used[stream.id] = stream.request.billed_prompt + len(stream.output.ids)
            whose.append((stream.request.organization_id, stream.id))
    if not ours:
        return
    twice = rules.settings().lease.lease_seconds * 2
    for request_id in refused(await run_pipeline(client, renew_calls(whose, twice, used))):
        log.info("reply ends at its quota", request=str(request_id), used=used[request_id])
        ours[request_id].interrupt(Interruption.QUOTA)
