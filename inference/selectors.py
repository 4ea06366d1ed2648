"""Questions about models, requests and their text. Reads only."""

import asyncio
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.utils import timezone

from chatsite.caching import ShortCache
from chatsite.database import run_db
from chatsite.redis import ask, async_client
from inference import forecast
from inference.errors import ModelNotAllowed, UnknownModel
from inference.models import Model, Partial, Replica, Request
from inference.protocol import QueuePlace
from inference.redis import keys, rules
from inference.redis.scheduler import Scheduler
from inference.replicas import ReplicaState, published_states
from inference.settlement import join_text
from quotas.protocol import PlanLimits
from quotas.selectors import aplan_of

known_models: ShortCache[str, Model] = ShortCache(5.0)  # a changed models.toml is seen everywhere after this long

SHOWN_SECONDS = 60  # what was shown of a wait is kept for those who come back, or open a second page
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(QueuePlace).decode
_waiting: "ShortCache[UUID, _Waits]" = ShortCache(60.0)
_shown: ShortCache[UUID, QueuePlace] = ShortCache(SHOWN_SECONDS)
_readiness: ShortCache[asyncio.AbstractEventLoop, asyncio.Task[dict[str, str]]] = ShortCache(1.0, limit=4)
_ahead: ShortCache[tuple[str, str, str], int] = ShortCache(1.0)


@dataclass(frozen=True)
class ModelInfo:
    """A model as a caller sees it."""

    name: str
    title: str
    context_length: int
    tiers: list[str]
    state: str  # ready, loading or down
    description: str = ""
    created: int = 0  # when it was first in models.toml, Unix seconds


@dataclass(frozen=True)
class PartialText:
    """What is saved of a running reply, from the owner's character `from_char` on. `tokens` counts from its start."""

    text: str
    tokens: int
    from_char: int


def get_model(name: str) -> Model:
    """Up to 5 s old. Raises UnknownModel."""
    known = known_models.get(name)
    if known is not None:
        return known
    # PostgreSQL refuses a NUL rather than not finding it.
    model = None if "\0" in name else Model.objects.filter(name=name).first()
    if model is None:
        raise UnknownModel(f"There is no model named {name[:100]!r}.", param="model")
    if not model.enabled:
        raise UnknownModel(f"{model} is not available any more. Choose another model.", param="model")
    known_models.put(name, model)
    return model


def require_model(name: str | None, tier: str, among: Collection[str] = ()) -> Model:
    """The named model, or the first that the tier may use. Raises UnknownModel, ModelNotAllowed.

    `among`: names of those that a plan has; empty: all that the tier has.
    """
    if name is not None:
        model = get_model(name)
        if tier not in model.tiers or (among and name not in among):
            raise ModelNotAllowed(param="model")
        return model
    rows = Model.objects.filter(enabled=True, tiers__contains=[tier])
    default = (rows.filter(name__in=among) if among else rows).first()
    if default is None:
        raise UnknownModel("No model is available on your plan.", param="model")
    return default


async def aget_model(name: str) -> Model:
    """`get_model`, for async code: a thread is used only when the model is not known."""
    known = known_models.get(name)
    return known if known is not None else await run_db(get_model, name)


async def arequire_model(name: str, tier: str, among: Collection[str] = ()) -> Model:
    """`require_model`, for async code: a thread is used only when the model is not known."""
    known = known_models.get(name)
    if known is not None and tier in known.tiers and (not among or name in among):
        return known
    return await run_db(require_model, name, tier, among)


def _info(model: Model, state: str) -> ModelInfo:
    return ModelInfo(
        model.name,
        model.title or model.name,
        model.context_length,
        model.tiers,
        state,
        model.description,
        int(model.created_at.timestamp()),
    )


async def models_for(tier: str | None, among: Collection[str] = ()) -> list[ModelInfo]:
    """Enabled models that the tier may use (all without a tier), in the order of models.toml.

    `among`: as for `require_model`.
    """
    return [
        _info(model, state)
        for model, state in await _models_with_state()
        if (tier is None or tier in model.tiers) and (not among or model.name in among)
    ]


async def readiness() -> dict[str, str]:
    """Model name -> ready, loading or down. Raises redis and database errors."""
    return {model.name: state for model, state in await _models_with_state()}


async def _models_with_state() -> list[tuple[Model, str]]:
    pairs = await run_db(_models_and_replicas)
    client = async_client()
    return [(model, _best(await published_states(client, model.name, rows))) for model, rows in pairs]


def _models_and_replicas() -> list[tuple[Model, list[Replica]]]:
    models = Model.objects.filter(enabled=True).prefetch_related("replicas")
    return [(model, [row for row in model.replicas.all() if row.enabled]) for model in models]


def _best(states: list[ReplicaState | None]) -> str:
    if ReplicaState.READY in states:
        return ReplicaState.READY
    return ReplicaState.DOWN if states and all(state is ReplicaState.DOWN for state in states) else ReplicaState.LOADING


@dataclass(frozen=True)
class _Waits:
    """What of a request never changes. `tokens` of its prompt."""

    model: str
    organization_id: UUID
    lane: str
    tokens: int
    created_at: datetime
    deadline: datetime

    def cap(self, seconds: float) -> float:
        """No longer than it may still wait; as it is for one that goes on beyond that, because it was preempted."""
        left = (self.deadline - timezone.now()).total_seconds()
        return min(seconds, left) if left > 0 else seconds


async def queue_place(request_id: UUID) -> QueuePlace | None:
    """As all who look at this request are shown it; None when it does not wait (any more)."""
    waits = await _waits(request_id)
    if waits is None:
        return None
    place, before = await asyncio.gather(
        Scheduler(async_client(), waits.model).place(str(request_id)), _shown_before(request_id)
    )
    if place is None:
        return None
    states = await _recent_readiness()
    predicted = await forecast.of_waiting(async_client(), waits.model, waits.lane, waits.tokens, place.ahead)
    smaller = await _offered(waits, states, predicted.expected if predicted else math.inf)
    found = QueuePlace(
        place.ahead + 1,
        round(waits.cap(predicted.expected), 1) if predicted and predicted.trusted else None,
        loading=states.get(waits.model, ReplicaState.DOWN) == ReplicaState.LOADING,
        preemptions=place.preemptions,
        smaller=(smaller.title or smaller.name) if smaller else "",
    )
    shown = found.after(before, time.time())
    _shown.put(request_id, shown)
    return shown


async def smaller_model(request_id: UUID) -> Model | None:
    """The model that who waits for this request may take instead: one that may stand in, allowed and ready."""
    waits = await _waits(request_id)
    return await _ready_instead(waits, await _recent_readiness()) if waits else None


async def sooner_model(name: str, organization_id: UUID, tokens: int, seconds: float) -> Model | None:
    """The model that may stand in for one, where it is ready and expected to begin to answer within `seconds`.

    `tokens`: of the prompt, about.
    """
    plan = await aplan_of(organization_id)
    model = await _ready(name, plan, await _recent_readiness())
    if model is None or await _expected(model.name, plan.tier, organization_id, tokens) >= seconds:
        return None
    return model


async def _waits(request_id: UUID) -> _Waits | None:
    known = _waiting.get(request_id)
    if known is None:
        fields = ("model_id", "organization_id", "lane", "prompt_tokens", "created_at", "deadline")
        row = await run_db(lambda: Request.objects.filter(id=request_id).values_list(*fields).first())
        if row is None:
            return None
        known = _Waits(*row)
        _waiting.put(request_id, known)
    return known


async def _shown_before(request_id: UUID) -> QueuePlace | None:
    """What somebody was shown last, in this process or another. The others learn of it with the next look."""
    key, mine = keys.shown(request_id), _shown.get(request_id)
    if mine is None:
        [packed] = await ask(async_client(), ("GET", key))
    else:
        [packed] = await ask(async_client(), ("SET", key, _pack(mine), "EX", SHOWN_SECONDS, "GET"))
    stored = _unpack(packed) if packed else None
    return mine.after(stored, time.time()) if mine and stored else mine or stored


async def _recent_readiness() -> Mapping[str, str]:
    """`readiness` as it was a second ago at most: asked once for all that wait in this process."""
    loop = asyncio.get_running_loop()
    asked = _readiness.get(loop)
    if asked is None or (asked.done() and (asked.cancelled() or asked.exception())):
        asked = loop.create_task(readiness())
        _readiness.put(loop, asked)
    return await asyncio.shield(asked)  # who leaves meanwhile leaves it to the others


async def _offered(waits: _Waits, states: Mapping[str, str], left: float) -> Model | None:
    """Where it would begin to answer in less than the `left` seconds that are expected here."""
    model = await _ready_instead(waits, states)
    if model is None or await _expected(model.name, waits.lane, waits.organization_id, waits.tokens) >= left:
        return None
    return model


async def _ready_instead(waits: _Waits, states: Mapping[str, str]) -> Model | None:
    """Only for who has waited for a while."""
    if (timezone.now() - waits.created_at).total_seconds() < rules.settings().admission.offer_smaller_seconds:
        return None
    return await _ready(waits.model, await aplan_of(waits.organization_id), states)


async def _ready(name: str, plan: PlanLimits, states: Mapping[str, str]) -> Model | None:
    """The model that may stand in for the one of that name, if an engine of it is ready."""
    try:
        model = await aget_model(name)
    except UnknownModel:  # disabled meanwhile
        return None
    return await stand_in(model, plan) if states.get(model.fallback) == ReplicaState.READY else None


async def _expected(model: str, lane: str, organization_id: UUID, tokens: int) -> float:
    """Seconds to the first token of such a prompt, if it came now; infinite where nothing is known."""
    seen = await forecast.see(async_client(), model)
    ahead = await _before_next(model, lane, str(organization_id)) if seen.waiting(lane) else 0
    predicted = await forecast.of_waiting(async_client(), model, lane, tokens, ahead)
    return predicted.expected if predicted else math.inf


async def _before_next(model: str, lane: str, tenant: str) -> int:
    """As it was a second ago at most. Not by `forecast.before_next`, which learns from each that comes: none does."""
    known = _ahead.get((model, lane, tenant))
    if known is None:
        known = await Scheduler(async_client(), model).before_next(lane, tenant, 0)
        _ahead.put((model, lane, tenant), known)
    return known


async def stand_in(model: Model, plan: PlanLimits) -> Model | None:
    """The model that may stand in for one, where it is there and that plan may use it."""
    if not model.fallback:
        return None
    try:
        return await arequire_model(model.fallback, plan.tier, plan.models)
    except (UnknownModel, ModelNotAllowed):
        return None


def partial_text(request_id: UUID) -> PartialText:
    """All that is saved of a running request; empty when nothing is."""
    request = Request.objects.filter(id=request_id).only("base_tokens", "base_chars").first()
    if request is None:
        return PartialText("", 0, 0)
    rows = Partial.objects.filter(request_id=request_id).order_by("from_token")
    saved = join_text(rows, request.base_tokens, request.base_chars, None)
    return PartialText(saved.text, request.base_tokens + len(saved.token_ids), request.base_chars)


def request_summary(request_id: UUID, organization_id: UUID) -> dict[str, Any] | None:
    """The row of a request for its owner, None when it is not theirs."""
    rows: Any = Request.objects.filter(id=request_id, organization_id=organization_id).values()
    found: dict[str, Any] | None = rows.first()
    return found
