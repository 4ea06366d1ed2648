"""What tests of the OpenAI-compatible routes have in common."""

import json
from collections.abc import Callable
from typing import Any

from chatsite.database import run_db
from inference.models import Request
from quotas.models import LedgerEntry
from tests.asgi_client import Answer
from tests.inference.runner.conftest import House, fake_model
from tests.waiting import wait_until

Chat = Callable[..., dict[str, Any]]
PATH = "/v1/chat/completions"


def chunks_of(answer: Answer) -> list[dict[str, Any]]:
    """The chunks of a stream that ended as it should."""
    events = [event.removeprefix("data: ") for event in answer.body.decode().split("\n\n") if event.startswith("data:")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def text_of(chunks: list[dict[str, Any]], choice: int = 0) -> str:
    return "".join(
        each["delta"].get("content", "") for chunk in chunks for each in chunk["choices"] if each["index"] == choice
    )


def told(house: House) -> tuple[list[int], str]:
    """What the engine has sent for the last call."""
    ids = house.engines[0].calls[-1].token_ids
    return ids, fake_model.vocabulary.text(ids)


async def rows() -> list[Request]:
    return await run_db(lambda: list(Request.objects.order_by("created_at")))


async def entries() -> list[LedgerEntry]:
    """All rows of the ledger, by request."""
    return await run_db(lambda: list(LedgerEntry.objects.order_by("request_id")))


async def over(house: House) -> None:
    """Everything that was accepted is released, and nothing is held."""

    async def released() -> bool:
        return all(row.released_at is not None for row in await rows())

    await wait_until(released)
    await house.nothing_is_held()
