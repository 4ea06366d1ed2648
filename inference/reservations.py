"""What requests reserve, and what of it is open: quotas ask for it when Redis has lost what was counted (settings).

Those of the batch lane reserve when they start (inference.runner.starting), all others when they are accepted.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import Q

from inference import output_lengths, tuning
from inference.models import Lane, Model, Request
from quotas.protocol import Prices
from quotas.selectors import aprice_of, price_of
from quotas.services import Open, Requests, Used, Want, units, want

# Each column by itself: a whole row would bring its sampling and its decision along.
_COLUMNS = ("id", "user_id", "api_key_id", "model_id", "lane", "prompt_tokens", "bills_prompt")

LIFE_SECONDS = 30.0  # the least, however short a wait was tuned: inference.renewal comes in time to prolong it
HOLDS_NOTHING = Q(lane=Lane.BATCH, attempt=0)  # it has not been claimed yet, and reserves just before that


def life(lane: str) -> float:
    """Seconds that a reservation of the lane lives unless it is renewed: as long as its request may wait.

    One of the batch lane is renewed from its start on, whether its request waits again or not.
    """
    return LIFE_SECONDS if lane == Lane.BATCH else max(tuning.queue_timeout(lane), LIFE_SECONDS)


def holds(request: Request) -> bool:
    """Whether an open request has reserved what it may use."""
    return _holds(request.lane, request.attempt)


def _holds(lane: str, attempt: int) -> bool:
    return lane != Lane.BATCH or attempt > 0


def prices_of(model: Model) -> Prices:
    """As models.toml has them: for a model without a price list."""
    return Prices(model.price_input, model.price_cached, model.price_output)


async def wanted(request_id: UUID, organization_id: UUID, model: Model, lane: str, *, input: int, output: int) -> Want:
    """What one that is to be accepted reserves: `input` tokens that are billed, at most `output` of answer."""
    price = await aprice_of(model.name, request_id, prices_of(model))
    expected = (await output_lengths.expected(organization_id, model.name)).q90
    return want(input, output, expected, price, lane)


def used(request: Request) -> Used:
    """What quotas hear of a terminal request, whose `billed_cost` is known."""
    billed = request.billed_prompt + request.output_tokens if request.output_tokens else 0
    return Used(minute_tokens(request), billed, units(request.billed_cost) if request.billed_cost is not None else 0)


def minute_tokens(request: Request) -> int:
    """Nothing is billed for a prompt without an answer. But an engine has read it: that counts against the minute, or
    hanging up before the first token would cost a caller nothing, and everybody else an engine."""
    return request.output_tokens + (request.billed_prompt if request.attempt else 0)


def open_requests(organization_id: UUID) -> Requests:
    """As of the caller's transaction."""
    rows = Request.objects.filter(organization_id=organization_id, released_at=None)
    ended = rows.filter(status__in=Request.TRANSITIONS.terminal)
    active = rows.filter(status__in=Request.TRANSITIONS.active).values(*_COLUMNS, "attempt", "sampling__max_tokens")
    models = Model.objects.in_bulk()
    held = [_open(row, models) for row in active if _holds(row["lane"], row["attempt"])]
    waiting = [row["id"] for row in active if not _holds(row["lane"], row["attempt"])]
    return Requests(held, {row.id: minute_tokens(row) for row in ended}, waiting)


def _open(row: Mapping[str, Any], models: Mapping[str, Model]) -> Open:
    prompt, output = (row["prompt_tokens"] if row["bills_prompt"] else 0), int(row["sampling__max_tokens"])
    price = price_of(row["model_id"], row["id"], prices_of(models[row["model_id"]]))
    most = want(prompt, output, output, price, row["lane"])
    return Open(row["id"], row["user_id"], row["api_key_id"], most.most, most.cost)
