"""What brings every request to an end whoever dies: run each second by every runner and by the Celery worker."""

import time
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db.models import QuerySet
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client
from inference import held_back, output_lengths, presence, prompt_store, readers, renewal, reservations, tuning
from inference.barred import stop_barred
from inference.finishing import mark_released, release, settle_unclaimed
from inference.models import Model, Request, RequestStatus
from inference.queueing import enqueue_call
from inference.redis import keys, rules
from inference.redis.scheduler import Scheduler
from inference.replicas import ReplicaState, published_states
from inference.settlement import CANCELLED, ENDINGS, Ending
from quotas.services import forget_where_redis_restarted
from quotas.services import restore as restore_reservation

log = structlog.get_logger(__name__)
UNKNOWN_AFTER = timedelta(seconds=3)  # a queued row that Redis does not know by then is entered again
PROMPT_AFTER = timedelta(seconds=15)  # only the process that accepted it has the prompt, and may be busy so long
RELEASE_AFTER = timedelta(seconds=2)
BATCH = 500


async def sweep(loading: Collection[str] | None = None) -> None:
    """`loading`: models of which no replica is ready yet, where the caller knows. Raises redis and database errors."""
    await run_db(tuning.refresh)
    for model in await run_db(_model_names):
        still = model in loading if loading is not None else await _is_loading(model)
        await _reap(model, loading=still)
    if await async_client().set(keys.SWEEP_LOCK, 1, nx=True, px=900):
        await forget_where_redis_restarted()
        await _compare()
        await renewal.renew_waiting()  # after what Redis lost was entered again, with its tokens


async def _reap(model: str, *, loading: bool) -> None:
    scheduler = Scheduler(async_client(), model)
    for id, outcome in await scheduler.reap(loading=loading):
        request_id = UUID(id)
        if not await settle_unclaimed(request_id, await _ending(model, outcome)):
            await _forget(scheduler, request_id)


async def _ending(model: str, outcome: str) -> Ending:
    if outcome in ENDINGS:
        return ENDINGS[outcome]
    states = await _states(model)
    if ReplicaState.READY in states:
        return Ending(RequestStatus.EXPIRED, "", "high_demand", "High demand: the wait was too long.")
    return Ending(RequestStatus.EXPIRED, "", "engine_unavailable", "No engine is available for this model.")


async def _forget(scheduler: Scheduler, request_id: UUID) -> None:
    """The row is gone, or was terminal before: whoever ended it may have died before telling Redis."""
    request = await run_db(lambda: Request.objects.filter(id=request_id).first())
    if request is not None:
        await run_db(mark_released, await release([request]))
    else:
        await scheduler.run(scheduler.settle_call(str(request_id)))


async def _compare() -> None:
    """PostgreSQL is the truth: what it has open must be known to Redis; what it has ended must be released there."""
    await _cancel_uncalled()
    await stop_barred()
    ended, still_open = await run_db(_unreleased)
    if ended:
        await run_db(mark_released, await release(ended))
    still_open += await held_back.due(UNKNOWN_AFTER)
    by_model: dict[str, list[tuple[UUID, bool]]] = defaultdict(list)
    for request_id, model, cancelled_at in still_open:
        by_model[model].append((request_id, cancelled_at is not None))
    for model, rows in by_model.items():
        scheduler = Scheduler(async_client(), model)
        known = await scheduler.knows([request_id for request_id, _ in rows])
        for (request_id, cancelled), is_known in zip(rows, known, strict=True):
            if not is_known:
                await _enter_again(scheduler, request_id)
            elif cancelled:
                await scheduler.cancel(str(request_id))  # whoever asked may have died before telling Redis


async def _cancel_uncalled() -> None:
    """Nobody waits for a call whose process is gone: a stop is noted here, and announced with the others.

    One that is read by another process, too, is that one's from now on.
    """
    gone = await presence.gone(await run_db(_callers))
    if not gone:
        return
    for request_id, other in (await readers.adopters(await run_db(_called_by, gone))).items():
        await run_db(_hand_over, request_id, gone, other)
    log.warning("callers are gone", requests=await run_db(_note_cancelled, gone))


async def _enter_again(scheduler: Scheduler, request_id: UUID) -> None:
    request = await run_db(lambda: Request.objects.filter(id=request_id).first())
    if request is None or request.status in Request.TRANSITIONS.terminal:
        return
    if request.status == RequestStatus.RUNNING and not await _long_missing(request.id):
        return  # its runner may still have it in memory
    if request.cancel_requested_at is not None:
        await settle_unclaimed(request.id, CANCELLED)
        return
    if await _may_be_on_its_way(request):
        return
    holds = reservations.holds(request)
    if holds:  # else this is how it waits for room
        log.info("request entered again", request=str(request.id), status=request.status)
    deadline = max(request.deadline, timezone.now() + timedelta(seconds=rules.settings().lease.requeued_wait_seconds))
    expected = await output_lengths.expected(request.organization_id, request.model_id)
    call = enqueue_call(
        scheduler,
        request.id,
        request.lane,
        request.organization_id,
        request.weight,
        input=request.prompt_tokens,
        output=min(request.sampling["max_tokens"], expected.q50),
        deadline=deadline,
        rank=request.created_at.timestamp() * 1000,
        attempt=request.attempt,  # each start of one that is held back is charged: it takes its lane's turn
    )
    await scheduler.run(call)
    if holds:
        reserved = request.billed_prompt + request.sampling["max_tokens"]
        await restore_reservation(request.organization_id, request.id, reserved, reservations.life(request.lane))
    await scheduler.client.delete(keys.missing(request.id))


async def _may_be_on_its_way(request: Request) -> bool:
    """Whether its prompt may still come from where it was accepted. Entered without one, it could only fail."""
    is_young = request.attempt == 0 and request.created_at > timezone.now() - PROMPT_AFTER
    return is_young and not await prompt_store.exists(request)


async def _long_missing(request_id: UUID) -> bool:
    client, key, now = async_client(), keys.missing(request_id), time.time()
    if await client.set(key, now, nx=True, ex=60):
        return False
    since = await client.get(key)
    return since is not None and now - float(since) > rules.settings().lease.lease_seconds + 1


async def _is_loading(model: str) -> bool:
    states = await _states(model)
    return ReplicaState.READY not in states and ReplicaState.LOADING in states


async def _states(model: str) -> list[ReplicaState | None]:
    row = await run_db(lambda: Model.objects.prefetch_related("replicas").get(name=model))
    return await published_states(async_client(), model, [replica for replica in row.replicas.all() if replica.enabled])


def _callers() -> list[UUID]:
    """Processes that callers of open requests are connected to."""
    callers = _open_calls().values_list("caller_id", flat=True).distinct()
    return [caller for caller in callers if caller is not None]


def _called_by(callers: Collection[UUID]) -> list[UUID]:
    return list(_open_calls().filter(caller_id__in=callers).values_list("id", flat=True))


def _hand_over(request_id: UUID, before: Collection[UUID], after: UUID) -> None:
    _open_calls().filter(id=request_id, caller_id__in=before).update(caller_id=after)


def _note_cancelled(callers: Collection[UUID]) -> int:
    return _open_calls().filter(caller_id__in=callers).update(cancel_requested_at=timezone.now())


def _open_calls() -> QuerySet[Request]:
    return Request.objects.filter(
        released_at=None, status__in=Request.TRANSITIONS.active, cancel_requested_at=None, caller_id__isnull=False
    )


def _model_names() -> list[str]:
    return list(Model.objects.values_list("name", flat=True))


def _unreleased() -> tuple[list[Request], list[tuple[UUID, str, datetime | None]]]:
    """Terminal rows that Redis has not confirmed; (id, model, stop asked for at) of open ones that Redis must know.

    Without those that have not started, of which it need not: see `held_back`.
    """
    now = timezone.now()
    waiting = Request.objects.filter(released_at=None).order_by("created_at")
    ended = waiting.filter(status__in=Request.TRANSITIONS.terminal, finished_at__lt=now - RELEASE_AFTER)
    still_open = waiting.filter(
        ~reservations.HOLDS_NOTHING, status__in=Request.TRANSITIONS.active, created_at__lt=now - UNKNOWN_AFTER
    )
    return list(ended[:BATCH]), list(still_open.values_list("id", "model_id", "cancel_requested_at")[:BATCH])
