"""The last steps of a request that PostgreSQL has ended: readers are told, scheduler and quota get back what it held.

Each step is idempotent; `released_at` is set when all have confirmed, and the sweep repeats them until then.
"""

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from chatsite import notices
from chatsite.database import run_db
from chatsite.redis import Call, async_client, run_pipeline
from inference import output_lengths, reservations
from inference.events import LogContents, close_call, read_log
from inference.models import Request, RequestStatus
from inference.protocol import Result
from inference.redis.scheduler import Scheduler
from inference.settlement import Ending, settle_open
from quotas.selectors import costs_of
from quotas.services import SETTLE, settle_call, settled
from quotas.usage_events import UsageEvent, publish_call

log = structlog.get_logger(__name__)


def release_calls(request: Request) -> list[Call]:
    """Everything that Redis must hear about a terminal request, whose `billed_cost` is known."""
    # A page of its user that shows something else tells that the reply is there.
    told = [notices.announce_call(request.user_id, request.owner_id)] if request.owner_kind == "message" else []
    return [
        close_call(request.id, settings.LOG_TTL_SECONDS, result_of(request)),
        Scheduler(async_client(), request.model_id).settle_call(
            str(request.id), request.output_tokens, output_lengths.observed(request)
        ),
        settle_call(request.organization_id, request.id, reservations.used(request)),
        publish_call(_event(request)),
        *told,
    ]


def _event(request: Request) -> UsageEvent:
    result = result_of(request)
    return UsageEvent(
        request_id=request.id,
        organization_id=request.organization_id,
        user_id=request.user_id,
        api_key_id=request.api_key_id,
        model=request.model_id,
        lane=request.lane,
        input=result.input,
        cached=result.cached,
        output=result.output,
        cost=request.billed_cost or Decimal(0),
        outcome=result.status,
    )


def result_of(request: Request) -> Result:
    """How a terminal request ended."""
    used = request.output_tokens > 0
    return Result(
        status=request.status,
        finish_reason=request.finish_reason,
        error_code=request.error_code,
        error_message=request.error_message,
        input=request.billed_prompt if used else 0,
        cached=request.cached_tokens,
        output=request.output_tokens,
        refusal=request.refusal,
    )


async def release(requests: Sequence[Request]) -> list[UUID]:
    """Tells Redis about terminal requests; returns the ids that it confirmed."""
    await _know_costs(requests)
    calls: list[Call] = []
    owners: list[UUID] = []
    for request in requests:
        for call in release_calls(request):
            calls.append(call)
            owners.append(request.id)
    try:
        results = await run_pipeline(async_client(), calls)
    except (RedisError, OSError) as error:
        log.warning("requests not released yet", count=len(requests), error=str(error))
        return []
    refused = set()
    for request_id, call, result in zip(owners, calls, results, strict=True):
        if isinstance(result, Exception):
            refused.add(request_id)
            log.warning("request not released yet", request=str(request_id), error=str(result))
        elif call.script is SETTLE and not settled(result):
            refused.add(request_id)  # the sweep comes again, when what its organization has spent is counted
    return [request.id for request in requests if request.id not in refused]


async def _know_costs(requests: Sequence[Request]) -> None:
    """Whoever has just settled a request knows what it cost; of others the ledger does."""
    unknown = [request for request in requests if request.billed_cost is None]
    if unknown:
        costs = await run_db(costs_of, [request.id for request in unknown])
        for request in unknown:
            request.billed_cost = costs.get(request.id, Decimal(0))


async def release_if_over(request_id: UUID) -> None:
    """For one that Redis still knows: when PostgreSQL has ended it, or does not have it, Redis forgets it too."""
    request = await run_db(lambda: Request.objects.filter(id=request_id).first())
    if request is not None and request.status in Request.TRANSITIONS.terminal:
        await run_db(mark_released, await release([request]))


def mark_released(request_ids: Sequence[UUID]) -> None:
    Request.objects.filter(id__in=request_ids, released_at=None).update(released_at=timezone.now())


async def settle_unclaimed(request_id: UUID, ending: Ending, *, only_queued: bool = False) -> bool:
    """Ends a request that no runner holds, with the text it has so far; False when it had ended already.

    `only_queued`: leave one alone that ran before, since a runner may still hold it.
    """
    logged = await _logged(request_id)
    request = await run_db(_settle, request_id, ending, logged, only_queued)
    if request is None:
        return False
    confirmed = await release([request])
    if confirmed:
        await run_db(mark_released, confirmed)
    return True


def _settle(request_id: UUID, ending: Ending, logged: LogContents | None, only_queued: bool) -> Request | None:
    if only_queued and not Request.objects.filter(id=request_id, status=RequestStatus.QUEUED).exists():
        return None
    return settle_open(request_id, ending, logged)


async def _logged(request_id: UUID) -> LogContents | None:
    try:
        return await read_log(async_client(), request_id)
    except (RedisError, OSError) as error:
        log.warning("token log unreadable", request=str(request_id), error=str(error))
        return None  # what PostgreSQL has saved is kept
