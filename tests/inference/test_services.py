"""A request is promised only when everything that its promise needs can be written."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis.exceptions import ConnectionError as LostConnection

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client, run_pipeline
from inference import services, sweep
from inference.models import Model, Request
from inference.protocol import Prepared, Sampling
from inference.redis import keys
from inference.redis.scheduler import Scheduler
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


def open_request(person: Person, prepared: Prepared, weight: float = 1.0) -> services.OpenedRequest:
    return services.open_request(
        request_id=new_id(),
        principal=person.principal,
        tier="paid",
        prepared=prepared,
        owner_kind="completion",
        owner_id=new_id(),
        weight=weight,
    )


async def test_a_connection_that_is_lost_while_a_request_is_submitted_costs_nothing(
    person: Person, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stateless call only this process has the prompt."""
    opened = await run_db(open_request, person, Prepared(model.name, [1, 2], Sampling(5), "salt"))
    lost = iter([LostConnection("gone")])

    async def once_lost(*args: Any) -> list[Any]:
        for error in lost:
            raise error
        return await run_pipeline(*args)

    monkeypatch.setattr(services, "run_pipeline", once_lost)
    await services.submit(opened)
    assert await async_client().exists(keys.prompt(opened.id))
    assert await Scheduler(async_client(), model.name).place(str(opened.id)) is not None


async def test_the_weight_of_a_plan_is_told_to_the_scheduler_and_again_after_redis_was_lost(
    person: Person, model: Model
) -> None:
    prepared = Prepared(model.name, [1, 2], Sampling(5), "salt")
    opened = await run_db(open_request, person, prepared, 4.0)
    weights = f"{keys.scheduler(model.name)}:weight:paid"
    await services.submit(opened)
    assert await async_client().hget(weights, str(person.organization.id)) == b"4"  # type: ignore[misc]
    await async_client().flushall()
    long_ago = timezone.now() - timedelta(minutes=1)
    await run_db(Request.objects.filter(id=opened.id).update, created_at=long_ago)
    await sweep.sweep()
    assert await async_client().hget(weights, str(person.organization.id)) == b"4"  # type: ignore[misc]
