"""A house whose callers speak the OpenAI API."""

from collections.abc import Callable

import pytest

from tests.conversations.callers import Caller
from tests.inference.runner.conftest import House, house, model

__all__ = ["House", "house", "model"]


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
