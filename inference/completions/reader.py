"""What comes of a call's requests, read from their token logs: each piece of text once, then how it ended."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError

from chatsite.accounts.errors import KeyPaused
from chatsite.accounts.protocol import Principal
from chatsite.accounts.selectors import caller_now
from chatsite.concurrency import end_tasks
from chatsite.database import run_db
from chatsite.errors import AppError, InvalidInput, NotAuthenticated, RateLimited, Unavailable
from inference import events, tokenization
from inference.completions.alignment import Alignment, PlacedToken
from inference.completions.errors import CallCancelled, WaitedTooLong
from inference.errors import EngineUnavailable, HighDemand
from inference.finishing import result_of
from inference.models import Model, Request, RequestStatus
from inference.protocol import EndEvent, LogEvent, Refusal, Result, TokensEvent
from quotas.errors import BudgetExhausted, NoPlan, Stopped
from quotas.protocol import Remaining

log = structlog.get_logger(__name__)
SILENT_SECONDS = 5  # without a word from the log for so long, the row is read
LOST = "The text of this answer was lost. Send the call again."


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that was added to a choice. `logprobs`: of the tokens whose text has begun by its end, where asked for."""

    choice: int
    text: str
    logprobs: Sequence[PlacedToken] | None


@dataclass(frozen=True, slots=True)
class Ended:
    choice: int
    result: Result


async def follow(requests: Sequence[UUID], model: Model | None = None) -> AsyncGenerator[Piece | Ended, None]:
    """Pieces of all choices as they come, and one Ended for each. Raises Unavailable when a text was lost.

    `model`: whose they are, where log probabilities were asked for.
    """
    if len(requests) == 1:
        async with aclosing(_follow(0, requests[0], model)) as pieces:
            async for piece in pieces:
                yield piece
        return
    queue: asyncio.Queue[Piece | Ended | BaseException] = asyncio.Queue()
    tasks = [asyncio.create_task(_relay(index, request, model, queue)) for index, request in enumerate(requests)]
    try:
        open_choices = len(tasks)
        while open_choices:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            open_choices -= isinstance(item, Ended)
            yield item
    finally:
        await end_tasks(tasks)


async def _relay(
    index: int, request: UUID, model: Model | None, queue: "asyncio.Queue[Piece | Ended | BaseException]"
) -> None:
    try:
        async with aclosing(_follow(index, request, model)) as pieces:
            async for piece in pieces:
                queue.put_nowait(piece)
    except Exception as error:  # raised by the reader of the queue
        queue.put_nowait(error)


async def _follow(index: int, request_id: UUID, model: Model | None) -> AsyncGenerator[Piece | Ended, None]:
    position = tokens = silent = 0
    alignment = Alignment(await tokenization.decoder(model, [])) if model is not None else None
    result: Result | None = None
    tail = cast(AsyncGenerator[LogEvent | None, None], events.tail(request_id))
    async with aclosing(tail) as entries:
        async for entry in entries:
            if isinstance(entry, TokensEvent):
                silent, result = 0, None
                if entry.from_char > position:  # the log lost its beginning, and is being written anew from memory
                    raise Unavailable(LOST)
                text = entry.text[position - entry.from_char :]
                position, tokens = position + len(text), max(tokens, entry.tokens)
                shown = None
                if alignment is not None:
                    alignment.add(entry)
                    shown = alignment.shown(position)
                if text or shown:
                    yield Piece(index, text, shown)
            elif isinstance(entry, EndEvent):
                result = entry.result or await _result_in_the_end(request_id)
                break
            elif entry is None:
                silent += 1
                if silent >= SILENT_SECONDS:
                    silent, before, result = 0, result, await _result_so_far(request_id)
                    # A row is terminal before its log says so: what the log lacks yet is waited for once more.
                    if result is not None and (before is not None or _has_all(result, tokens)):
                        break
    ended = Ended(index, _whole(result, tokens))
    if alignment is not None and (rest := alignment.rest(position)):
        yield Piece(index, "", rest)
    yield ended


def _has_all(result: Result, tokens: int) -> bool:
    return result.output <= tokens


def _whole(result: Result | None, tokens: int) -> Result:
    """Raises Unavailable where the log ended before the text did."""
    if result is None or not _has_all(result, tokens):
        raise Unavailable(LOST)
    return result


async def _result_in_the_end(request_id: UUID) -> Result | None:
    """Of a log that has ended. While PostgreSQL is away it is waited for: the answer is there, and is paid for."""
    while True:
        try:
            return await _read_result(request_id)
        except (DatabaseError, InterfaceError) as error:
            log.warning("how a call ended is not known yet", request=str(request_id), error=str(error))
            await asyncio.sleep(1)


async def _result_so_far(request_id: UUID) -> Result | None:
    """None also while PostgreSQL is away: the runner goes on, and so does who reads its log."""
    try:
        return await _read_result(request_id)
    except (DatabaseError, InterfaceError) as error:
        log.warning("a silent call cannot be looked up", request=str(request_id), error=str(error))
        return None


async def _read_result(request_id: UUID) -> Result | None:
    """None while it is not terminal."""
    request = await run_db(lambda: Request.objects.filter(id=request_id).first())
    if request is None:
        raise Unavailable(LOST)
    return result_of(request) if request.status in Request.TRANSITIONS.terminal else None


def failure(result: Result) -> AppError | None:
    """Why there is no answer, as an error; None when there is one."""
    match result.status:
        case RequestStatus.SUCCEEDED:
            return None
        case RequestStatus.CANCELLED:  # by somebody else: its own caller is gone then
            return CallCancelled(retry_after=1)
        case RequestStatus.SHED:
            return HighDemand(retry_after=5)
    if result.error_code == HighDemand.code:
        return WaitedTooLong(retry_after=5)
    if result.error_code == "engine_rejected":
        return InvalidInput(result.error_message)
    return _refusal(result) or EngineUnavailable(result.error_message or None, retry_after=2)


async def as_told_now(error: AppError, principal: Principal) -> AppError:
    """The same, but to whom may do nothing any more as they would be told at once: another try would not help.

    Raises KeyPaused, database errors.
    """
    if isinstance(error, CallCancelled) and not await run_db(_may_call, principal):
        return NotAuthenticated("This call was cancelled, as its API key or account is not valid any more.")
    return error


def _may_call(principal: Principal) -> bool:
    return caller_now(principal.user_id, principal.organization_id, principal.api_key_id) is not None


# What a request of the batch lane may be refused for when it is to start
_REFUSALS: dict[str, type[AppError]] = {
    each.code: each for each in (RateLimited, NoPlan, KeyPaused, Stopped, Unavailable)
}


def _refusal(result: Result) -> AppError | None:
    """As it would have been told at once."""
    known = result.refusal or Refusal()
    if result.error_code == BudgetExhausted.code:
        held = known.should_retry is None
        return BudgetExhausted(result.error_message, Remaining(()), known.retry_after, held=held)
    if (kind := _REFUSALS.get(result.error_code)) is None:
        return None
    error = kind(result.error_message, retry_after=known.retry_after)
    error.should_retry = known.should_retry
    if isinstance(error, RateLimited) and known.of == "tokens":
        error.of = "tokens"
    return error
