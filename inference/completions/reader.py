"""What comes of a call's requests, read from their token logs: each piece of text once, then how it ended."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from chatsite.concurrency import end_tasks
from chatsite.database import run_db
from chatsite.errors import AppError, InvalidInput, RateLimited, Unavailable
from inference import events
from inference.errors import EngineUnavailable, HighDemand
from inference.finishing import result_of
from inference.models import Request, RequestStatus
from inference.protocol import EndEvent, LogEvent, Result, TokensEvent

SILENT_SECONDS = 5  # without a word from the log for so long, the row is read
LOST = "The text of this answer was lost. Send the call again."


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that was added to a choice. `logprobs`: JSON, an entry for each token."""

    choice: int
    text: str
    logprobs: bytes | None


@dataclass(frozen=True, slots=True)
class Ended:
    choice: int
    result: Result


async def follow(requests: Sequence[UUID]) -> AsyncGenerator[Piece | Ended, None]:
    """Pieces of all choices as they come, and one Ended for each. Raises Unavailable when a text was lost."""
    if len(requests) == 1:
        async with aclosing(_follow(0, requests[0])) as pieces:
            async for piece in pieces:
                yield piece
        return
    queue: asyncio.Queue[Piece | Ended | BaseException] = asyncio.Queue()
    tasks = [asyncio.create_task(_relay(index, request, queue)) for index, request in enumerate(requests)]
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


async def _relay(index: int, request: UUID, queue: "asyncio.Queue[Piece | Ended | BaseException]") -> None:
    try:
        async with aclosing(_follow(index, request)) as pieces:
            async for piece in pieces:
                queue.put_nowait(piece)
    except Exception as error:  # raised by the reader of the queue
        queue.put_nowait(error)


async def _follow(index: int, request_id: UUID) -> AsyncGenerator[Piece | Ended, None]:
    position = tokens = silent = 0
    log = cast(AsyncGenerator[LogEvent | None, None], events.tail(request_id))
    async with aclosing(log) as entries:
        async for entry in entries:
            if isinstance(entry, TokensEvent):
                silent = 0
                if entry.from_char > position:  # the log lost its beginning, and is being written anew from memory
                    raise Unavailable(LOST)
                text = entry.text[position - entry.from_char :]
                if text or (entry.logprobs and entry.tokens > tokens):
                    yield Piece(index, text, entry.logprobs)
                    position += len(text)
                tokens = max(tokens, entry.tokens)
            elif isinstance(entry, EndEvent):
                yield Ended(index, _whole(entry.result or await _read_result(request_id), tokens))
                return
            elif entry is None:
                silent += 1
                if silent >= SILENT_SECONDS:
                    silent = 0
                    if (result := await _read_result(request_id)) is not None:
                        yield Ended(index, _whole(result, tokens))
                        return


def _whole(result: Result | None, tokens: int) -> Result:
    """Raises Unavailable where the log ended before the text did."""
    if result is None or result.output > tokens:
        raise Unavailable(LOST)
    return result


async def _read_result(request_id: UUID) -> Result | None:
    """None while it is not terminal."""
    request = await run_db(lambda: Request.objects.filter(id=request_id).first())
    if request is None:
        raise Unavailable(LOST)
    return result_of(request) if request.status in Request.TRANSITIONS.terminal else None


def failure(result: Result) -> AppError | None:
    """Why there is no answer, as an error; None when there is one."""
    match result.status:
        case RequestStatus.SUCCEEDED | RequestStatus.CANCELLED:
            return None
        case RequestStatus.EXPIRED:
            return Unavailable("The wait in the queue was too long. Try again.", retry_after=5)
        case RequestStatus.SHED:
            return HighDemand(retry_after=5)
    if result.error_code == "engine_rejected":
        return InvalidInput(result.error_message)
    if result.error_code == RateLimited.code:
        return RateLimited(result.error_message)
    return EngineUnavailable(result.error_message or None, retry_after=2)
