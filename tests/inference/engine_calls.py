"""A fake engine, and calls to it as the runner makes them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from aiohttp import ClientSession

from inference.vllm import Delta, Engine, EngineCall, EngineError, new_session
from tests.fakes.engine import FakeEngine, Options
from tests.fakes.engine_tokens import bundled_model

MODEL = "smollm2-135m"
PROMPT = [1, 4093, 198, 28120, 2, 198]

FINISHED = (
    b'data: {"choices":[{"index":0,"text":"a","token_ids":[7],"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":6,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(Options(model=MODEL), model=bundled_model()) as running:
        yield running


@pytest_asyncio.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with new_session() as made:
        yield made


@pytest_asyncio.fixture
async def engine(fake: FakeEngine, session: ClientSession) -> Engine:
    return Engine(fake.url + "/", session)


def call(max_tokens: int = 20, **changes: Any) -> EngineCall:
    return EngineCall(**{"model": MODEL, "prompt_ids": PROMPT, "max_tokens": max_tokens, **changes})


async def collect(engine: Engine, asked: EngineCall, **timeouts: float) -> tuple[list[Delta], EngineError | None]:
    """All Deltas, and the error after them."""
    deltas: list[Delta] = []
    try:
        async with engine.stream(asked, **timeouts) as stream:
            async for delta in stream:
                deltas.append(delta)
    except EngineError as error:
        return deltas, error
    return deltas, None


def ids_of(deltas: list[Delta]) -> list[int]:
    return [token_id for delta in deltas for token_id in delta.token_ids]
