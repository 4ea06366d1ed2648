"""How a request ends: state, ledger row and its owner's text in one transaction, by whoever gets there first."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from chatsite.errors import RateLimited
from chatsite.status import move
from inference.errors import HighDemand
from inference.events import LogContents, unpack_ids
from inference.models import Lane, Partial, Request, RequestStatus
from inference.owners import owner
from inference.protocol import Outcome, Refusal, Usage
from inference.reservations import prices_of
from quotas.selectors import price_of
from quotas.services import Times, record_usage


@dataclass(frozen=True)
class Ending:
    """How a request ended, before PostgreSQL knows. `status` is a terminal RequestStatus."""

    status: RequestStatus
    finish_reason: str = ""
    error_code: str = ""
    error_message: str = ""
    refusal: Refusal | None = None


CANCELLED = Ending(RequestStatus.CANCELLED, "cancelled")
EXHAUSTED = Ending(RequestStatus.FAILED, "", "engine_unavailable", "No engine could finish this reply.")
# The end of a wait in the batch lane: told as what it finds no room within its limits for (inference.runner.starting).
NO_PLACE = Ending(
    RequestStatus.EXPIRED,
    error_code=RateLimited.code,
    error_message="The flex tier had no place for this call in time. Try again later, or without it.",
    refusal=Refusal(retry_after=5.0),
)
ENDINGS = {"cancelled": CANCELLED, "failed": EXHAUSTED}  # by what release and reap answer


@dataclass(frozen=True)
class Text:
    """What a request added to its owner's text."""

    token_ids: list[int]
    text: str


def settle_claimed(request: Request, ending: Ending, produced: Text, cached: int | None, *, saved: bool) -> bool:
    """By the runner that holds the claim; `request` as it was when it took it. `saved`: there may be partial rows.

    `cached`: how much of the prompt the engine had, None where it has not told that.
    False when it holds it no more, or somebody else settled.
    """
    with transaction.atomic():
        bill = _finish(request, {"claim": request.claim}, ending, produced, cached)
        if saved and bill is not None:
            Partial.objects.filter(request_id=request.id).delete()
    return _noted(request, ending, bill)


def settle_open(request_id: UUID, ending: Ending, logged: LogContents | None) -> Request | None:
    """By the sweep or a stop, for a request that no runner holds: text from its saved partials and its log.

    None when the request is gone or terminal.
    """
    with transaction.atomic():
        request = Request.objects.select_for_update(of=("self",)).select_related("model").filter(id=request_id).first()
        if request is None or request.status in Request.TRANSITIONS.terminal:
            return None
        if request.lane == Lane.BATCH and ending.error_code == HighDemand.code:
            ending = NO_PLACE
        if not Request.TRANSITIONS.allows(request.status, ending.status):  # it ran before: expired is failed then
            ending = replace(ending, status=RequestStatus.FAILED)
        produced = saved_text(request.id, request.base_tokens, request.base_chars, logged)
        bill = _finish(request, {"attempt": request.attempt}, ending, produced, None)
        Partial.objects.filter(request_id=request.id).delete()
    return request if _noted(request, ending, bill) else None


def saved_text(request_id: UUID, base_tokens: int, base_chars: int, logged: LogContents | None) -> Text:
    """The longer of what PostgreSQL has and what the log has, joined at the token."""
    rows = Partial.objects.filter(request_id=request_id).order_by("from_token")
    return join_text(rows, base_tokens, base_chars, logged)


def join_text(rows: Iterable[Partial], base_tokens: int, base_chars: int, logged: LogContents | None) -> Text:
    ids: list[int] = []
    pieces: list[str] = []
    for row in rows:
        if row.from_token != base_tokens + len(ids):
            break  # a gap: what follows cannot be joined
        ids += unpack_ids(row.ids)
        pieces.append(row.text)
    text = "".join(pieces)
    saved = base_tokens + len(ids)
    if logged is not None and logged.from_token <= saved < logged.from_token + len(logged.token_ids):
        ids = ids[: logged.from_token - base_tokens] + logged.token_ids
        text = text[: logged.from_char - base_chars] + logged.text
    return Text(ids, text)


@dataclass(frozen=True)
class _Bill:
    """What the ledger has of a request."""

    usage: Usage
    cost: Decimal


def _finish(
    request: Request, guard: dict[str, object], ending: Ending, produced: Text, cached: int | None
) -> _Bill | None:
    usage, now = _worth(request, ending, len(produced.token_ids), cached or 0), timezone.now()
    moved = move(
        Request.objects.filter(id=request.id, **guard),
        request.status,
        ending.status,
        finish_reason=ending.finish_reason,
        error_code=ending.error_code,
        error_message=ending.error_message[:500],
        cached_tokens=usage.cached,
        output_tokens=usage.output,
        first_token_at=request.first_token_at,
        finished_at=now,
        **_forgotten(request.sampling),
    )
    if not moved:
        return None
    bill = _Bill(usage, _write_down(request, ending, usage, source_of(usage, cached), now))
    owner(request.owner_kind).finished(
        Outcome(
            request_id=request.id,
            owner_id=request.owner_id,
            status=ending.status,
            finish_reason=ending.finish_reason,
            error_code=ending.error_code,
            error_message=ending.error_message,
            text=produced.text,
            token_ids=produced.token_ids,
            base_tokens=request.base_tokens,
            usage=usage,
        )
    )
    return bill


def _write_down(request: Request, ending: Ending, usage: Usage, source: str, now: datetime) -> Decimal:
    """The ledger's row, at the price that was in force when the request was accepted. Returns the cost."""
    price = price_of(request.model_id, request.id, prices_of(request.model))
    waited, first, whole = (_ms(request, moment) for moment in (request.claimed_at, request.first_token_at, now))
    return record_usage(
        request_id=request.id,
        organization_id=request.organization_id,
        user_id=request.user_id,
        api_key_id=request.api_key_id,
        model=request.model_id,
        prices=price.prices,
        price=price.id,
        lane=request.lane,
        usage=usage,
        outcome=ending.status,
        source=source,
        times=Times(waited, first, whole),
    )


def source_of(usage: Usage, cached: int | None) -> str:
    """Input are the tokens that an engine was sent, output those that it has sent. How much it had cached it tells at
    the end of a whole reply: of another nothing is billed as cached, and that is an estimate."""
    return "estimate" if cached is None and usage.input else "engine"


def _ms(request: Request, moment: datetime | None) -> int | None:
    """From its acceptance on; hosts' clocks may differ by a little."""
    return None if moment is None else max(0, round((moment - request.created_at).total_seconds() * 1000))


def _forgotten(sampling: dict[str, Any]) -> dict[str, Any]:
    """What changes in the row so that only the numbers of `sampling` stay: the rest is what the caller wrote."""
    extra = sampling.get("extra", {})
    numbers = {name: value for name, value in extra.items() if isinstance(value, (int, float))}
    if numbers == extra and not sampling.get("stop"):
        return {}
    return {"sampling": {**sampling, "stop": [], "extra": numbers}}


def _worth(request: Request, ending: Ending, output: int, cached: int) -> Usage:
    """What is billed. The ledger has its row also where the owner got nothing, and nothing is."""
    lost = ending.status == RequestStatus.FAILED and not request.bills_partial
    if lost or not output:
        return Usage(0, 0, 0)
    return Usage(request.billed_prompt, min(cached, request.billed_prompt), output)


def _noted(request: Request, ending: Ending, bill: _Bill | None) -> bool:
    """Only after the commit: until then the row is as it was, and settling may be tried again."""
    if bill is None:
        return False
    request.status, request.finish_reason = ending.status, ending.finish_reason
    request.error_code, request.error_message = ending.error_code, ending.error_message[:500]
    request.cached_tokens, request.output_tokens = bill.usage.cached, bill.usage.output
    request.billed_cost = bill.cost
    request.refusal = ending.refusal
    return True
