"""Calls whose callers take the smaller model, too: it answers while the one they asked for is busy or not there."""

import asyncio
from collections.abc import Iterator
from decimal import Decimal

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from inference import forecast
from inference.forecast import Outlook, Place
from inference.models import Model, Request
from inference.redis import keys
from inference.scheduling.prediction import Learned, Prediction
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, entries, over, rows
from tests.inference.runner.conftest import House, up
from tests.tuning import atune, patience


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    forecast.forget()
    yield
    forecast.forget()


async def test_the_smaller_model_answers_where_the_own_one_is_not_there(
    house: House, big: Model, caller: Caller, chat: Chat
) -> None:
    await up(house)
    answer = await caller.call("POST", PATH, chat(model="big", allow_fallback=True, max_tokens=5))
    assert answer.status == 200, answer.body
    assert answer.json()["model"] == house.model.name
    assert answer.headers["x-fallback-from"] == "big"
    await over(house)
    [row] = await rows()
    assert (row.model_id, row.decision["instead_of"]) == (house.model.name, {"model": "big"})
    [entry] = await entries()
    assert (entry.model, entry.output) == (house.model.name, 5)
    assert entry.cost < Decimal("0.00001")  # at the prices of the model that ran


async def test_a_stream_says_so_in_every_chunk(house: House, big: Model, caller: Caller, chat: Chat) -> None:
    await up(house)
    answer = await caller.call("POST", PATH, chat(model="big", allow_fallback=True, max_tokens=5, stream=True))
    assert answer.headers["x-fallback-from"] == "big"
    assert {chunk["model"] for chunk in chunks_of(answer)} == {house.model.name}


async def test_in_a_crowd_the_smaller_model_answers_and_the_pressure_is_kept(
    house: House, big: Model, caller: Caller, chat: Chat
) -> None:
    await up(house)
    [dispatcher] = [each for each in house.runners[0][0].dispatchers.values() if each.pool.model.name != "big"]
    for _ in range(25):
        dispatcher.foresight._predictors["paid"].observe(Prediction(0.1, 0.1, 0.1, True), 0.1, 0.0)
    await dispatcher.look()
    known = {"paid": Learned({0: (1.0, 1.0)})}
    busy = Place("b", 0, 0, 8, 100_000, 8, 1000.0, 1.0)
    crowd = Outlook({"paid": 50}, {"paid": 500.0}, known, [busy], 1.0)
    await forecast.publish(async_client(), keys.scheduler("big"), crowd)
    forecast.forget()
    answer = await caller.call("POST", PATH, chat(model="big", allow_fallback=True, max_tokens=5))
    assert answer.json()["model"] == house.model.name
    [row] = await rows()
    assert row.decision["instead_of"]["x"] > 1
    assert "x" not in row.decision  # that is the other model's


async def test_who_does_not_allow_it_waits(house: House, big: Model, caller: Caller, chat: Chat) -> None:
    await atune(lanes=patience(0.5))
    await up(house)
    for allowed in ({}, {"allow_fallback": False}, {"allow_fallback": None}):
        answer = await caller.call("POST", PATH, chat(model="big", max_tokens=5, **allowed))
        assert answer.status == 503
        assert "x-fallback-from" not in answer.headers


async def test_token_ids_are_of_one_model_alone(house: House, big: Model, caller: Caller, chat: Chat) -> None:
    await atune(lanes=patience(0.5))
    await up(house)
    ids = {"model": "big", "prompt": [5, 6, 7], "max_tokens": 5, "allow_fallback": True}
    biased = chat(model="big", max_tokens=5, allow_fallback=True, logit_bias={"5": 1})
    answers = await asyncio.gather(caller.call("POST", "/v1/completions", ids), caller.call("POST", PATH, biased))
    assert [answer.status for answer in answers] == [503, 503]
    assert {row.model_id for row in await rows()} == {"big"}


async def test_what_the_smaller_model_cannot_read_waits_for_its_own(
    house: House, big: Model, caller: Caller, chat: Chat
) -> None:
    await atune(lanes=patience(0.5))
    await up(house)
    answer = await caller.call("POST", PATH, chat("word " * 5000, model="big", max_tokens=5, allow_fallback=True))
    assert answer.status == 503
    assert {row.model_id for row in await rows()} == {"big"}


async def test_a_model_that_the_plan_has_not_does_not_stand_in(
    house: House, big: Model, caller: Caller, chat: Chat
) -> None:
    await run_db(lambda: Model.objects.filter(name=house.model.name).update(tiers=["enterprise"]))
    await atune(lanes=patience(0.5))
    await up(house)
    answer = await caller.call("POST", PATH, chat(model="big", max_tokens=5, allow_fallback=True))
    assert answer.status == 503


async def test_a_repeat_is_told_the_same(house: House, big: Model, caller: Caller, chat: Chat) -> None:
    await up(house)
    body, key = chat(model="big", allow_fallback=True, max_tokens=5), str(new_id())
    first, again = [await caller.call("POST", PATH, body, idempotency_key=key) for _ in range(2)]
    assert first.json() == again.json()
    assert again.headers["x-fallback-from"] == "big"
    assert await run_db(Request.objects.count) == 1


async def test_no_more_than_true_or_false_is_taken(caller: Caller, house: House, chat: Chat) -> None:
    answer = await caller.call("POST", PATH, chat(allow_fallback="yes"))
    assert (answer.status, answer.json()["error"]["param"]) == (400, "allow_fallback")
