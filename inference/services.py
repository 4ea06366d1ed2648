"""What rooms above ask of inference: encode, accept, submit, cancel. The life of a request is in docs/lifecycle.md."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from psycopg.types.json import Jsonb
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import RedisError

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.redis import Put, async_client, run_pipeline
from inference import admission, output_lengths, prompt_store, tokenization, tuning
from inference.catalog import ModelSpec
from inference.finishing import settle_unclaimed
from inference.models import Lane, Model, Replica, Request
from inference.protocol import Decided, Prepared, Turn
from inference.queueing import enqueue_call
from inference.redis.scheduler import Scheduler
from inference.scheduling.answers import State
from inference.selectors import stand_in
from inference.settlement import CANCELLED
from quotas.protocol import PlanLimits
from quotas.services import Prices, sync_price

log = structlog.get_logger(__name__)
_OPEN_REQUEST = (Path(__file__).parent / "sql" / "open_request.sql").read_text()  # a quarter of the time of the ORM
SUBMISSIONS = 2  # a connection that is lost is opened anew, and only this process has the prompt of a stateless call
LANES = {"free": Lane.FREE, "paid": Lane.PAID, "enterprise": Lane.ENTERPRISE}


@dataclass(frozen=True)
class OpenedRequest:
    """A request that PostgreSQL has, to be submitted once the transaction is committed."""

    id: UUID
    model: str
    lane: str
    tenant: UUID
    weight: float
    deadline: datetime
    prepared: Prepared
    prompt: Put  # made before the commit: what cannot be written is refused while nothing is promised


async def encode(model: Model, turns: Sequence[Turn]) -> list[int]:
    """Token ids of the chat. Raises PromptError kinds, ControlToken, ModelLoading, EngineUnavailable."""
    return await tokenization.encode(model, turns)


async def count(model: Model, texts: Sequence[str]) -> list[int]:
    """Tokens of each text, for fitting a context."""
    return await tokenization.count(model, texts)


def lane_of(tier: str, *, batch: bool = False) -> Lane:
    """Where requests of a plan's tier wait. `batch`: in the lane that comes last, at half the price."""
    return Lane.BATCH if batch else LANES[tier]


async def decide(
    model: Model,
    plan: PlanLimits,
    *,
    tenant: UUID,
    input: int,
    outputs: Sequence[int],
    may_fall_back: bool = False,
    batch: bool = False,
) -> Decided:
    """Whether requests are let in, and which model runs them: its record is for `open_request`. Raises HighDemand.

    `input`: tokens of all prompts; `outputs`: of each answer the most. `may_fall_back`: the caller takes the model that
    stands in for a busy one, too. `batch`: as in `lane_of`.
    """
    usual, requests = (await output_lengths.expected(tenant, model.name)).q50, len(outputs)
    output = sum(min(usual, most) for most in outputs) // requests
    smaller = await stand_in(model, plan) if may_fall_back else None
    lane, instead = lane_of(plan.tier, batch=batch), smaller.name if smaller else None
    return await admission.decide(model.name, lane, str(tenant), input // requests, output, instead, requests=requests)


def open_request(
    *,
    request_id: UUID,
    principal: Principal,
    tier: str,
    prepared: Prepared,
    owner_kind: str,
    owner_id: UUID,
    base_tokens: int = 0,
    base_chars: int = 0,
    bills_prompt: bool = True,
    bills_partial: bool = True,
    caller_id: UUID | None = None,
    decision: Mapping[str, Any] | None = None,
    weight: float = 1.0,
    batch: bool = False,
    waits_at_most: float = math.inf,
) -> OpenedRequest:
    """Writes the row, inside the caller's transaction; `submit` the result after its commit.

    `caller_id`: the process that holds the connection, where its end is to cancel the request. `bills_partial`: whether
    its owner has something of an answer that breaks off. `decision`: the record that `decide` gave. `weight`: the
    organization's within the lane. `batch`: as in `lane_of`. `waits_at_most`: seconds, where the lane's are more.
    """
    tuning.refresh()
    lane = lane_of(tier, batch=batch)
    now = timezone.now()
    deadline = now + timedelta(seconds=min(tuning.queue_timeout(lane), waits_at_most))
    row: dict[str, Any] = {
        "id": request_id,
        "organization_id": principal.organization_id,
        "user_id": principal.user_id,
        "api_key_id": principal.api_key_id,
        "model_id": prepared.model,
        "lane": lane.value,
        "weight": weight,
        "owner_kind": owner_kind,
        "owner_id": owner_id,
        "caller_id": caller_id,
        "sampling": Jsonb(asdict(prepared.sampling)),
        "cache_salt": prepared.cache_salt,
        "prompt_tokens": len(prepared.token_ids),
        "bills_prompt": bills_prompt,
        "bills_partial": bills_partial,
        "base_tokens": base_tokens,
        "base_chars": base_chars,
        "created_at": now,
        "deadline": deadline,
        "decision": Jsonb(dict(decision or {})),
    }
    prompt = prompt_store.put(request_id, prepared, owner_kind)
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_REQUEST, row)
    tenant = principal.organization_id
    return OpenedRequest(request_id, prepared.model, lane, tenant, weight, deadline, prepared, prompt)


def cache_salt(organization_id: UUID, *, shared: bool = False) -> str:
    """One tenant's cached prompts never answer another's: the engine keeps a cache for each salt.

    `shared`: the plan puts the organization into the cache of all that share.
    """
    domain = "shared" if shared else str(organization_id)
    return salted_hmac("inference.prefix-cache", domain, algorithm="sha256").hexdigest()[:32]


async def submit_all(opened: Sequence[OpenedRequest]) -> None:
    """`submit` for each."""
    for one in opened:
        await submit(one)


async def submit(opened: OpenedRequest) -> None:
    """Hands the prompt and the request to Redis. On failure the row stands, and the sweep submits it later."""
    expected = await output_lengths.expected(opened.tenant, opened.model)
    call = enqueue_call(
        Scheduler(async_client(), opened.model),
        opened.id,
        opened.lane,
        opened.tenant,
        opened.weight,
        input=len(opened.prepared.token_ids),
        output=min(opened.prepared.sampling.max_tokens, expected.q50),
        deadline=opened.deadline,
    )
    reading = output_lengths.reading(opened.tenant, opened.model)
    for _ in range(SUBMISSIONS):
        try:
            result, *lengths = await run_pipeline(async_client(), [call, *reading], opened.prompt)
            if isinstance(result, Exception):
                raise result
            for each in lengths:
                output_lengths.note(opened.tenant, opened.model, each)
            return
        except (RedisError, OSError) as error:
            # PostgreSQL has accepted the request: that is the promise. The sweep enqueues what Redis does not know.
            log.warning("request not enqueued yet", request=str(opened.id), error=str(error))
            if not isinstance(error, LostConnection):
                return


async def cancel(request_id: UUID) -> None:
    """Asks to stop: PostgreSQL first, then a nudge to the runner. What still waited is settled when this returns."""
    model = await run_db(_note_cancel, request_id)
    if model is None:
        return
    try:
        state = await Scheduler(async_client(), model).cancel(str(request_id))
    except (RedisError, OSError) as error:
        log.warning("stop not announced", request=str(request_id), error=str(error))  # the sweep reads the row
        return
    if state in (State.QUEUED, State.UNKNOWN):
        # Unknown: Redis lost it, or the submission is still under way; the row decides.
        await settle_unclaimed(request_id, CANCELLED, only_queued=state is State.UNKNOWN)


async def withdraw(request_id: UUID) -> bool:
    """Ends a request if it still waits in the queue, in one step with looking; False where a runner has it, or nobody.

    Raises redis errors.
    """
    model = await run_db(_model_of_active, request_id)
    if model is None or await Scheduler(async_client(), model).cancel(str(request_id), waiting=True) != State.QUEUED:
        return False
    await settle_unclaimed(request_id, CANCELLED)  # where the sweep comes first, it does the same
    return True


def _model_of_active(request_id: UUID) -> str | None:
    rows = Request.objects.filter(id=request_id, status__in=Request.TRANSITIONS.active)
    return rows.values_list("model_id", flat=True).first()


def _note_cancel(request_id: UUID) -> str | None:
    """The request's model, or None when there is nothing to stop."""
    request = Request.objects.filter(id=request_id, status__in=Request.TRANSITIONS.active).only("model_id").first()
    if request is None:
        return None
    Request.objects.filter(id=request_id, cancel_requested_at=None).update(cancel_requested_at=timezone.now())
    return request.model_id


def sync_models(specs: Iterable[ModelSpec], started: Mapping[str, Sequence[str]]) -> None:
    """Makes the tables say what models.toml says. `started`: URLs of the engines that this installation starts.

    Models and replicas that are gone are disabled; what was used stays.
    """
    with transaction.atomic():
        names = []
        for position, spec in enumerate(specs):
            names.append(spec.name)
            model, _ = Model.objects.update_or_create(name=spec.name, defaults=_columns(spec, position))
            sync_price(spec.name, Prices(spec.price.input, spec.price.cached, spec.price.output))
            _sync_replicas(model, spec.replicas, started.get(spec.name, ()))
        Model.objects.exclude(name__in=names).update(enabled=False)


def _columns(spec: ModelSpec, position: int) -> dict[str, object]:
    return {
        "title": spec.title,
        "description": spec.description,
        "context_length": spec.context_length,
        "path": str(spec.path) if spec.path else "",
        "engine_model": spec.engine_model,
        "system_prompt": spec.system_prompt,
        "tiers": list(spec.tiers),
        "fallback": spec.fallback,
        "reasoning_open": spec.reasoning.open if spec.reasoning else "",
        "reasoning_close": spec.reasoning.close if spec.reasoning else "",
        "price_input": spec.price.input,
        "price_cached": spec.price.cached,
        "price_output": spec.price.output,
        "position": position,
        "enabled": True,
    }


def _sync_replicas(model: Model, configured: Iterable[str], started: Iterable[str]) -> None:
    wanted = {url.rstrip("/"): False for url in configured} | {url.rstrip("/"): True for url in started}
    for url, managed in wanted.items():
        Replica.objects.update_or_create(model=model, url=url, defaults={"managed": managed, "enabled": True})
    Replica.objects.filter(model=model).exclude(url__in=wanted).update(enabled=False)
