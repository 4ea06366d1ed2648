"""A request of the batch lane reserves when a runner starts it for the first time: it may wait for long before that.

What its limits have no room for at the moment waits outside the queues (inference.held_back), until its deadline. What
they never will have room for ends, with the refusal as its caller would have been told.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog
from django.utils import timezone

from chatsite.accounts.protocol import Principal
from chatsite.accounts.selectors import caller_now
from chatsite.database import run_db
from chatsite.errors import AppError, RateLimited, Unavailable
from inference import held_back, reservations
from inference.finishing import settle_unclaimed
from inference.models import Request, RequestStatus
from inference.protocol import Refusal
from inference.redis.scheduler import Scheduler
from inference.settlement import CANCELLED, Ending
from quotas import services as quota_services
from quotas.errors import QuotaExceeded, Stopped
from quotas.selectors import aplan_of

log = structlog.get_logger(__name__)
SOON_SECONDS = 1.0


@dataclass(frozen=True)
class _Found:
    """A request that has not started, and its caller as they are now; None: they may do nothing any more."""

    request: Request
    caller: Principal | None


async def may_start(request_id: UUID, scheduler: Scheduler, attempt: int) -> bool:
    """Whether it has reserved what it may use, now or before. False: it waits outside the queues, or has ended.

    Whoever calls holds the lease of `attempt`. Idempotent. Raises redis and database errors.
    """
    try:
        found = await run_db(_find, request_id)
        if found is None:  # it has started before, or is over: claiming tells which
            return True
        if found.caller is None:
            await settle_unclaimed(request_id, CANCELLED, only_queued=True)
            return False
        wait = await _reserve(found.request, found.caller)
    except AppError as error:
        log.info("not started", request=str(request_id), why=error.message)
        await settle_unclaimed(request_id, _refused(error), only_queued=True)
        return False
    if wait is None:
        return True
    await scheduler.set_aside(str(request_id), attempt)
    return False


def _find(request_id: UUID) -> _Found | None:
    """None where there is nothing to reserve any more. Raises KeyPaused."""
    request = Request.objects.filter(id=request_id, status=RequestStatus.QUEUED).select_related("model").first()
    if request is None or reservations.holds(request) or request.cancel_requested_at is not None:
        return None
    return _Found(request, caller_now(request.user_id, request.organization_id, request.api_key_id))


async def _reserve(request: Request, caller: Principal) -> float | None:
    """None: done; else it is noted that the caller has to wait, for so many seconds.

    Raises what it is refused for where no wait until its deadline would help.
    """
    if await held_back.is_noted(request) and timezone.now() < request.deadline:
        return SOON_SECONDS
    wanted = await reservations.wanted(
        request.id,
        request.organization_id,
        request.model,
        request.lane,
        input=request.billed_prompt,
        output=request.sampling["max_tokens"],
    )
    try:
        plan = await aplan_of(request.organization_id)
        await quota_services.start(caller, plan, request.id, wanted, reservations.life(request.lane))
        return None
    except Stopped:
        raise
    except (QuotaExceeded, Unavailable) as error:
        wait = error.retry_after
        if wait is None or timezone.now() + timedelta(seconds=wait) > request.deadline:
            raise
        log.info("held back", request=str(request.id), seconds=round(wait, 1), why=error.message)
        await held_back.note(request, wait)
        return wait


def _refused(error: AppError) -> Ending:
    of = error.of if isinstance(error, RateLimited) else None
    refusal = Refusal(error.retry_after, error.should_retry, of)
    return Ending(RequestStatus.FAILED, "", error.code, error.message, refusal)
