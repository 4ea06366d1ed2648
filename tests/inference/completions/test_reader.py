"""What a call's reader makes of a log that is late, and of one that was lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from chatsite.errors import Unavailable
from chatsite.ids import new_id
from inference import events
from inference.completions import reader
from inference.completions.reader import SILENT_SECONDS, Ended, Piece, failure, follow
from inference.protocol import EndEvent, LogEvent, Result, TokensEvent

RESULT = Result("succeeded", "length", "", "", 3, 0, 2)
TOKENS = TokensEvent("2-0", 2, 0, "Hi", None, events.pack_ids([1, 2]))


def told(monkeypatch: pytest.MonkeyPatch, log: list[LogEvent | None]) -> None:
    """A log that says this, of a request whose row is terminal already."""

    async def tail(_request_id: UUID, _after: str = "0-0") -> AsyncIterator[LogEvent | None]:
        for each in log:
            yield each

    async def row(_request_id: UUID) -> Result:
        return RESULT

    monkeypatch.setattr(events, "tail", tail)
    monkeypatch.setattr(reader, "_read_result", row)


async def followed() -> list[Piece | Ended]:
    return [item async for item in follow([new_id()])]


@pytest.mark.parametrize("quiet", [SILENT_SECONDS, 2 * SILENT_SECONDS - 1])
async def test_a_row_that_is_terminal_before_its_log_loses_nothing(monkeypatch: pytest.MonkeyPatch, quiet: int) -> None:
    log: list[Any] = [*[None] * quiet, TOKENS, EndEvent("2-1000", RESULT)]
    told(monkeypatch, log)
    assert await followed() == [Piece(0, "Hi", None), Ended(0, RESULT)]


async def test_the_end_of_a_log_may_be_lost_when_the_text_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, [TOKENS, *[None] * SILENT_SECONDS])
    assert await followed() == [Piece(0, "Hi", None), Ended(0, RESULT)]


async def test_a_text_that_never_comes_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, [None] * 2 * SILENT_SECONDS)
    with pytest.raises(Unavailable, match="lost"):
        await asyncio.wait_for(followed(), 5)


@pytest.mark.parametrize("ended", [True, False])
async def test_while_postgresql_is_away_a_stream_goes_on_and_its_end_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """The answer is there, and is paid for."""
    last = EndEvent("2-1000", None if ended else RESULT)
    told(monkeypatch, [*[None] * 2 * SILENT_SECONDS, TOKENS, last])
    away = iter([OperationalError("away")] * 3)

    async def row(_request_id: UUID) -> Result:
        for error in away:
            raise error
        return RESULT

    monkeypatch.setattr(reader, "_read_result", row)
    assert await asyncio.wait_for(followed(), 10) == [Piece(0, "Hi", None), Ended(0, RESULT)]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("high_demand", "High demand: the wait was too long. Try again."),
        ("engine_unavailable", "No engine is available for this model."),
    ],
)
@pytest.mark.parametrize("status", ["expired", "failed"])  # failed: one that ran before
def test_who_waited_in_vain_is_told_why(code: str, message: str, status: str) -> None:
    result = Result(status, "", code, "No engine is available for this model.", 3, 0, 0)
    error = failure(result)
    assert error is not None
    assert (error.status, error.code, error.message) == (503, code, message)
