"""Reservations of what a runner streams: kept alive, and topped up with the tokens that a reply turns out to need.

All of them with each heartbeat, and one that runs short before that at once, so that fast replies do not outgrow what
is reserved between two heartbeats.
"""

import math
from collections.abc import Iterable

import structlog
from redis.asyncio import Redis

from chatsite.redis import run_pipeline
from inference.redis import rules
from inference.runner.stream import Interruption, Stream
from quotas.services import NEAR, renew_calls, renewed

FEWEST = 16  # tokens between two questions for more

log = structlog.get_logger(__name__)


def running_short(streams: Iterable[Stream]) -> list[Stream]:
    """Those that cannot wait for the next heartbeat; they are not named again before `renew` has been there."""
    found = [stream for stream in streams if len(stream.output.ids) >= stream.tops_up_at]
    for stream in found:
        stream.tops_up_at = math.inf
    return found


async def renew(client: Redis, streams: Iterable[Stream]) -> None:
    """One round trip for all. Where no more is left for a reply, it ends with what it has. Raises RedisError."""
    ours, prompts, used, whose = {}, {}, {}, []
    for stream in streams:
        if stream.request is not None:  # else it is not certain to be ours
            ours[stream.id] = stream
            prompts[stream.id] = stream.request.billed_prompt
            used[stream.id] = prompts[stream.id] + len(stream.output.ids)
            whose.append((stream.request.organization_id, stream.id))
    if not ours:
        return
    calls = renew_calls(whose, rules.settings().lease.lease_seconds * 2, used)
    found = renewed(calls, await run_pipeline(client, calls))
    for request_id in found.refused:
        log.info("reply ends at its quota", request=str(request_id), used=used[request_id])
        ours[request_id].interrupt(Interruption.QUOTA)
    for request_id, stream in ours.items():
        reserved = found.reserved.get(request_id)
        short = math.inf if reserved is None else reserved - NEAR - prompts[request_id]
        stream.tops_up_at = max(short, len(stream.output.ids) + FEWEST)
