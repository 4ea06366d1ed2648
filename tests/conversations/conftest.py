"""Conversations without an engine (replies are ended by hand), and a house with one."""

from collections.abc import Callable

import pytest

from conversations import services
from conversations.models import Conversation
from inference.models import Model
from tests.conftest import Person
from tests.conversations.callers import Caller
from tests.inference.runner.conftest import MODEL_PATH, House, house, model

__all__ = ["House", "house", "model"]


@pytest.fixture
def conversation(model: Model, person: Person) -> Conversation:
    """An empty one of `person`."""
    return services.create_conversation(person.principal, model=model.name)


@pytest.fixture
def caller(person: Person) -> Caller:
    """`person`, with their API key."""
    return Caller(person.headers)


@pytest.fixture
def small_model(model: Model) -> Model:
    """A model that reads 400 tokens."""
    return make_model("small", context_length=400)


@pytest.fixture
def make_extra_model(database: None) -> Callable[..., Model]:
    return make_model


def make_model(name: str, **changes: object) -> Model:
    values = {"title": name, "context_length": 4096, "path": MODEL_PATH, "tiers": ["free", "paid", "enterprise"]}
    prices = {"price_input": 1, "price_cached": 1, "price_output": 1}
    return Model.objects.create(name=name, **(values | prices | changes))
