"""A house whose callers speak the OpenAI API."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from inference import held_back, sweep
from inference.redis.scheduler import Scheduler
from tests.conversations.callers import Caller
from tests.inference.completions.flex_calls import set_aside
from tests.inference.runner.conftest import House, big, house, model

__all__ = ["House", "big", "house", "model"]


@pytest.fixture
def caller(house: House) -> Caller:
    """Who has the key of the house's person."""
    return Caller(house.person.headers)


@pytest.fixture
def chat() -> Callable[..., dict[str, object]]:
    """A body of /v1/chat/completions."""

    def body(text: str = "What is a river?", **changes: object) -> dict[str, object]:
        return {"model": "smollm2-135m", "messages": [{"role": "user", "content": text}], **changes}

    return body


@pytest.fixture
def flex(chat: Callable[..., dict[str, object]]) -> Callable[..., dict[str, object]]:
    """The same, on the flex tier."""

    def body(text: str = "What is a river?", **changes: object) -> dict[str, object]:
        return chat(text, service_tier="flex", **changes)

    return body


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was held back is tried again with the next sweep."""
    monkeypatch.setattr(sweep, "UNKNOWN_AFTER", timedelta(seconds=0.3))
    monkeypatch.setattr(sweep, "PROMPT_AFTER", timedelta(seconds=0.3))
    monkeypatch.setattr(held_back, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(held_back, "MOST_SECONDS", 0.2)
    original = Scheduler.set_aside

    async def noted(scheduler: Scheduler, id: str, attempt: int) -> bool:
        done = await original(scheduler, id, attempt)
        set_aside.add(id)
        return done

    monkeypatch.setattr(Scheduler, "set_aside", noted)
