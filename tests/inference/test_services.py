"""A request is promised only when everything that its promise needs can be written."""

from dataclasses import replace

import pytest

from chatsite.ids import new_id
from inference import services
from inference.models import Model, Request
from inference.protocol import Prepared, Sampling
from tests.conftest import Person
from tests.inference.runner.conftest import model

__all__ = ["model"]


def test_a_prompt_that_cannot_be_stored_opens_nothing(person: Person, model: Model) -> None:
    prepared = Prepared(model.name, [1, 2], Sampling(5), "salt")
    for sampling in (Sampling(5, extra={"m": 10**30}), Sampling(10**30)):
        with pytest.raises(OverflowError):
            open_request(person, replace(prepared, sampling=sampling))
        assert not Request.objects.exists()
    opened = open_request(person, prepared)
    assert Request.objects.get().id == opened.id
    assert opened.prompt.value


def open_request(person: Person, prepared: Prepared) -> services.OpenedRequest:
    return services.open_request(
        request_id=new_id(),
        principal=person.principal,
        tier="paid",
        prepared=prepared,
        owner_kind="completion",
        owner_id=new_id(),
    )
