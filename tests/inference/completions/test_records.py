"""The record of a call, found by the id of its answer; and that of one that was refused, in its refusal."""

import time
from typing import Any
from uuid import UUID

import pytest

from chatsite.ids import public_id
from inference import services
from inference.errors import HighDemand
from tests.conftest import Person
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, over, rows
from tests.inference.runner.conftest import House

COMPLETIONS = "/v1/completions"
DECISION = {"predicted": {"raw": 4.2, "expected": 5.1, "p90": 8.25}, "x": 1.65, "shed_probability": 1.0}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [PATH, COMPLETIONS])
async def test_the_id_of_an_answer_leads_to_its_record(
    house: House, caller: Caller, chat: Chat, stranger: Person, path: str, stream: bool
) -> None:
    await house.engine()
    await house.runner()
    body = chat(max_tokens=5, stream=stream)
    if path == COMPLETIONS:
        body = {"model": body["model"], "prompt": "What is a river?", "max_tokens": 5, "stream": stream}
    answer = await caller.call("POST", path, body)
    told = chunks_of(answer)[0] if stream else answer.json()
    [row] = await rows()
    assert told["id"] == f"{'cmpl' if path == COMPLETIONS else 'chatcmpl'}-{row.id.hex}"
    assert abs(told["created"] - time.time()) < 30
    await over(house)
    record = (await caller.call("GET", f"/v1/requests/{told['id']}")).json()
    assert record == (await caller.call("GET", f"/v1/requests/{public_id('req', row.id)}")).json()
    assert (record["id"], record["status"]) == (public_id("req", row.id), "succeeded")
    assert record["usage"]["output"] == 5
    [attempt] = record["decision"]["attempts"]
    assert attempt["lead"] == 0  # nobody else waits
    assert "answers" not in record["decision"]  # it is the only one
    foreign = await Caller(stranger.headers).call("GET", f"/v1/requests/{told['id']}")
    assert (foreign.status, foreign.json()["code"]) == (404, "not_found")


async def test_of_several_answers_the_first_leads_to_the_others(house: House, caller: Caller) -> None:
    await house.engine()
    await house.runner()
    body = {"model": "smollm2-135m", "prompt": ["One", "Two"], "n": 2, "max_tokens": 3}
    told = (await caller.call("POST", COMPLETIONS, body)).json()
    await over(house)
    first = (await caller.call("GET", f"/v1/requests/{told['id']}")).json()
    answers = first["decision"]["answers"]
    assert answers[0] == first["id"] == public_id("req", UUID(told["id"].removeprefix("cmpl-")))
    assert set(answers) == {public_id("req", row.id) for row in await rows()} and len(answers) == 4
    for other in answers[1:]:
        record = (await caller.call("GET", f"/v1/requests/{other}")).json()
        assert record["usage"]["output"] == 3
        assert "answers" not in record["decision"]


async def test_a_refusal_in_high_demand_says_why(
    house: House, caller: Caller, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise HighDemand("High demand. Try again in 4 s.", retry_after=4, decision=DECISION)

    monkeypatch.setattr(services, "decide", refuse)
    compatible = await caller.call("POST", PATH, chat())
    assert compatible.status == 429
    assert compatible.json() == {
        "error": {
            "message": "High demand. Try again in 4 s.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
            "decision": DECISION,
        }
    }
    conversation = (await caller.call("POST", "/v1/conversations", {"model": "smollm2-135m"})).json()["id"]
    native = await caller.call("POST", f"/v1/conversations/{conversation}/messages", {"content": "Hello"})
    assert native.status == 429
    assert (native.json()["code"], native.json()["decision"]) == ("high_demand", DECISION)
    assert await rows() == []
