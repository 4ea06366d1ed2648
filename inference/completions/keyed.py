"""Calls with an `Idempotency-Key`: the same key and body follow one call, charged once, while its text lives.

Several connections may follow it, and the last that leaves cancels it. A call that came to nothing (failed, cancelled,
given up in the queue) is not repeated to anybody: the next caller with its key begins anew.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from chatsite.accounts import idempotency
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.redis import async_client
from inference import readers
from inference.completions.acceptance import Accepted, Naming, Remember, accept, take_over
from inference.completions.calls import Call
from inference.completions.ending import cancel, go_on
from inference.completions.errors import IdempotencyExpired
from inference.events import has_log, read_log
from inference.models import Request, RequestStatus


async def accept_once(
    principal: Principal, route: str, key: str, body: bytes, call: Call, caller_id: UUID | None
) -> tuple[Accepted, str | None]:
    """The call, and this reader of it: None where nobody is waited for. Raises as `accept`, IdempotencyExpired,
    IdempotencyInFlight, IdempotencyMismatch."""
    reader = readers.new_reader(caller_id) if caller_id is not None else None
    while (replay := await idempotency.begin(principal, route, key, body)) is not None:
        if (earlier := await _attach(replay.answer, call.model, reader, caller_id)) is not None:
            return earlier, reader
        if await idempotency.reopen(principal, route, key, replay):
            break
    try:
        remember = _remember(principal, route, key, call.chat)
        accepted = await accept(principal, call, remember, caller_id=caller_id)
    except BaseException:
        await idempotency.abandon(principal, route, key)
        raise
    if reader is not None:
        try:
            await readers.join(accepted.requests, reader, new=True)
        except BaseException:  # nobody would be known to wait for it
            go_on(cancel(accepted.requests))
            raise
    return accepted, reader


def _remember(principal: Principal, route: str, key: str, chat: bool) -> Remember:
    def remember(requests: Sequence[UUID], prompt_tokens: int, model: str) -> None:
        naming = Naming.after(chat, requests)
        answer = {
            "requests": [str(one) for one in requests],
            "prompt_tokens": prompt_tokens,
            "model": model,
            "id": naming.id,
            "created": naming.created,
        }
        idempotency.record(principal, route, key, 200, answer)

    return remember


async def _attach(record: dict[str, Any], model: str, reader: str | None, caller_id: UUID | None) -> Accepted | None:
    """The earlier call, which goes on or has succeeded; None when it came to nothing. Raises IdempotencyExpired.

    `model`: which one was asked for.
    """
    requests = tuple(UUID(one) for one in record["requests"])
    rows = await run_db(_rows, requests)
    if not _came_to_nothing(rows) and any(row.status != RequestStatus.SUCCEEDED for row in rows):
        if reader is not None and not await readers.join(requests, reader):
            return None
        await take_over(requests, caller_id)  # the process that began may be gone
        rows = await run_db(_rows, requests)
    if _came_to_nothing(rows):
        return None
    ended = [row for row in rows if row.status == RequestStatus.SUCCEEDED]
    if len(rows) < len(requests) or not all([await _has_text(row) for row in ended]):
        raise IdempotencyExpired
    naming = Naming(record["id"], record["created"])
    return Accepted(requests, record["prompt_tokens"], naming, record.get("model", model))


def _rows(requests: Sequence[UUID]) -> list[Request]:
    return list(Request.objects.filter(id__in=requests).only("id", "status", "cancel_requested_at", "output_tokens"))


async def _has_text(row: Request) -> bool:
    """Whether the log has all of an answer that is complete: Redis may have lost it, or its beginning."""
    if not row.output_tokens:
        return await has_log(row.id)
    contents = await read_log(async_client(), row.id)
    return contents is not None and not contents.from_token and len(contents.token_ids) >= row.output_tokens


def _came_to_nothing(rows: Sequence[Request]) -> bool:
    """One that is to be cancelled has not ended yet, and will come to nothing."""
    return any(
        row.status != RequestStatus.SUCCEEDED
        and (row.status in Request.TRANSITIONS.terminal or row.cancel_requested_at is not None)
        for row in rows
    )
