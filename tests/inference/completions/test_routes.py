"""The OpenAI-compatible routes, from the body to the engine and back, on real stores and a fake engine."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from inference import services
from inference.models import KeptCall, Partial, Request, TextKeeping
from quotas.models import LedgerEntry, Plan
from quotas.selectors import known_plans, plan_of, remaining
from tests.asgi_client import Answer
from tests.conversations.callers import Caller
from tests.inference.runner.conftest import House, fake_model
from tests.tuning import atune, patience
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


async def over(house: House) -> None:
    """Everything that was accepted is released, and nothing is held."""

    async def released() -> bool:
        return all(row.released_at is not None for row in await rows())

    await wait_until(released)
    await house.nothing_is_held()


async def test_an_answer_in_one_piece(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    answer = await caller.call("POST", PATH, chat(max_tokens=20, temperature=0))
    assert answer.status == 200, answer.body
    ids, text = told(house)
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] == "length"
    [call] = house.engines[0].calls
    assert body["usage"]["prompt_tokens"] == len(call.prompt_ids)
    assert body["usage"]["completion_tokens"] == len(ids) == 20
    assert body["usage"]["total_tokens"] == len(call.prompt_ids) + 20
    assert int(answer.headers["x-ratelimit-limit-tokens"]) > 0
    await over(house)
    [entry] = await run_db(lambda: list(LedgerEntry.objects.all()))
    assert (entry.input, entry.output, entry.outcome) == (len(call.prompt_ids), 20, "succeeded")


async def test_a_stream_has_the_same_text_and_says_how_it_ended(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(emoji=0.3)
    await house.runner()
    body = chat(max_tokens=40, stream=True, stream_options={"include_usage": True})
    answer = await caller.call("POST", PATH, body)
    assert answer.headers["content-type"] == "text/event-stream"
    chunks = chunks_of(answer)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(chunks) == told(house)[1]
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 40
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_several_answers_to_one_prompt_bill_it_once(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    answer = await caller.call("POST", PATH, chat(max_tokens=5, n=3))
    body = answer.json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    prompt = len(house.engines[0].calls[0].prompt_ids)
    assert body["usage"]["prompt_tokens"] == prompt
    assert body["usage"]["completion_tokens"] == 15
    await over(house)
    entries = await run_db(lambda: list(LedgerEntry.objects.all()))
    assert sorted(entry.input for entry in entries) == [0, 0, prompt]
    streamed = chunks_of(await caller.call("POST", PATH, chat(max_tokens=5, n=2, stream=True)))
    assert {choice["index"] for chunk in streamed for choice in chunk["choices"]} == {0, 1}


async def test_a_stop_string_ends_the_text_before_it(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=200)
    await house.runner()
    whole = (await caller.call("POST", PATH, chat(max_tokens=60))).json()["choices"][0]["message"]["content"]
    stop = whole[70:78]
    body = (await caller.call("POST", PATH, chat(max_tokens=400, stop=["never said", stop]))).json()
    [choice] = body["choices"]
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"
    await wait_until(lambda: house.engines[0].running == 0, 2)
    assert house.engines[0].calls[-1].outcome == "aborted"
    streamed = chunks_of(await caller.call("POST", PATH, chat(max_tokens=400, stop=stop, stream=True)))
    assert text_of(streamed) == whole[: whole.index(stop)]
    await over(house)


async def test_a_stop_string_within_the_least_tokens_does_not_count(house: House, caller: Caller, chat: Chat) -> None:
    """Also where another engine goes on behind it."""
    for _ in range(2):
        await house.engine()
    await house.runner()
    whole = (await caller.call("POST", PATH, chat(max_tokens=60))).json()["choices"][0]["message"]["content"]
    early, late = whole[12:20], whole[150:158]
    assert whole.index(early) < 20 and whole.index(late) == 150
    for after in (0, 10):
        for each in house.engines:
            each.faults.stream, each.faults.after, each.faults.times = "reset" if after else "", after, 1
        body = chat(max_tokens=60, min_tokens=20, stop=[early, late])
        [choice] = (await caller.call("POST", PATH, body)).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (whole[:150], "stop"), after
    await over(house)


async def test_a_stop_string_across_a_failover_is_found(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine()
    await house.engine()
    await house.runner()
    whole = (await caller.call("POST", PATH, chat(max_tokens=80))).json()["choices"][0]["message"]["content"]
    stop = whole[100:120]
    expected = whole[: whole.index(stop)]
    for after in range(12, 40, 4):  # the cut lies before, in and behind the stop string
        for each in house.engines:
            each.faults.stream, each.faults.after, each.faults.times = "reset", after, 1
        answer = await caller.call("POST", PATH, chat(max_tokens=80, stop=stop, stream=True))
        chunks = chunks_of(answer)
        assert text_of(chunks) == expected, after
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        for each in house.engines:
            each.faults.stream = ""
    assert engine.calls
    await over(house)


async def test_a_lost_engine_is_no_seam_in_the_text(house: House, caller: Caller, chat: Chat) -> None:
    for _ in range(2):
        engine = await house.engine(emoji=0.5)
        engine.faults.stream, engine.faults.after, engine.faults.times = "reset", 17, 1
    await house.runner()
    answer = await caller.call("POST", PATH, chat(max_tokens=60, stream=True))
    text = text_of(chunks_of(answer))
    prompt = next(call.prompt_ids for each in house.engines for call in each.calls)
    assert text == fake_model.vocabulary.text(fake_model.vocabulary.expect(prompt[: len(prompt)], 60, 0.5))
    await over(house)


async def test_log_probabilities_come_for_each_token(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    body = (await caller.call("POST", PATH, chat(max_tokens=12, logprobs=True, top_logprobs=2))).json()
    content = body["choices"][0]["logprobs"]["content"]
    ids, _ = told(house)
    assert [one["token"] for one in content] == [f"<{token_id}>" for token_id in ids]
    assert content[0]["logprob"] == -ids[0] / 1000
    assert content[0]["bytes"] == list(f"<{ids[0]}>".encode())
    streamed = chunks_of(await caller.call("POST", PATH, chat(max_tokens=12, logprobs=True, stream=True)))
    tokens = [
        one["token"]
        for chunk in streamed
        for choice in chunk["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert tokens == [f"<{token_id}>" for token_id in told(house)[0]]


async def test_what_the_engine_knows_by_the_same_name_reaches_it(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    parameters = {
        "seed": 7,
        "top_p": 0.5,
        "temperature": 0.1,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "top_k": 5,
    }
    answer = await caller.call(
        "POST", PATH, chat(max_completion_tokens=4, min_tokens=2, response_format=schema, **parameters)
    )
    assert answer.status == 200
    sent = house.engines[0].calls[-1].body
    assert {name: sent[name] for name in parameters} == parameters
    assert sent["max_tokens"] == 4
    assert sent["min_tokens"] == 2
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "stop" not in sent


async def test_each_answer_has_a_seed_of_its_own(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    highest = 2**63 - 1
    for given, seeds in ((7, {7, 8, 9}), (highest, {highest, -(2**63), 1 - 2**63}), (None, {None})):
        house.engines[0].calls.clear()
        answer = await caller.call("POST", PATH, chat(max_tokens=2, n=3, seed=given))
        assert answer.status == 200, answer.body
        assert {call.body.get("seed") for call in house.engines[0].calls} == seeds


async def test_a_path_with_a_slash_behind_is_refused_in_their_form(house: House, caller: Caller, chat: Chat) -> None:
    for method, path in (("GET", "/v1/models/"), ("POST", PATH + "/"), ("POST", "/v1/completions/x")):
        answer = await caller.call(method, path, chat() if method == "POST" else None)
        assert answer.status == 404, answer.body
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")


async def test_a_caller_that_hangs_up_frees_the_engine(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    for stream in (True, False):
        async with caller.open("POST", PATH, chat(max_tokens=3000, stream=stream)) as call:
            await wait_until(lambda: engine.running == 1, 5)
            await wait_until(lambda: len(engine.calls[-1].token_ids) > 10, 5)
            if stream:
                await wait_until(lambda: len(call.received.chunks) > 3, 5)
        await wait_until(lambda: engine.running == 0, 1)
        await over(house)
    assert [row.status for row in await rows()] == ["cancelled", "cancelled"]
    entries = await run_db(lambda: list(LedgerEntry.objects.all()))
    assert len(entries) == 2
    assert all(entry.output > 0 for entry in entries)  # S23: what was made is billed once


async def test_nothing_that_was_said_is_kept(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=40)
    await house.runner()
    saved: list[int] = []

    async def watch() -> None:
        while True:
            saved.append(await run_db(Partial.objects.count))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(watch())
    await caller.call("POST", PATH, chat("a secret river", max_tokens=30))
    task.cancel()
    assert max(saved) == 0
    assert await run_db(KeptCall.objects.count) == 0
    [row] = await rows()
    assert "secret" not in json.dumps(row.sampling)


@pytest.mark.parametrize("end", ["succeeded", "cancelled", "expired", "failed"])
async def test_what_a_caller_wrote_beside_the_prompt_goes_with_the_call(
    house: House, caller: Caller, chat: Chat, settings: Any, end: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "secret", "schema": {"title": "secret"}}}
    body = chat(n=2, max_tokens=9, top_k=5, seed=3, stop=["secret"], logit_bias={"7": 1}, response_format=form)
    if end == "expired":
        await atune(lanes=patience(0.5))
    else:
        engine = await house.engine(tokens_per_second=2 if end == "cancelled" else 500)
        if end == "failed":
            engine.faults.stream, engine.faults.after, engine.faults.times = "error", 2, 0
    await house.runner()
    async with caller.open("POST", PATH, body):
        await wait_until(there_are_two)
        if end == "cancelled":
            await wait_until(lambda: engine.running == 2)
        else:
            await over(house)
    await over(house)
    found = await rows()
    assert end in {row.status for row in found} <= {end, "cancelled"}  # one that fails ends the other
    for row in found:
        sampling = row.sampling
        assert (sampling["stop"], sampling["extra"], sampling["max_tokens"]) == ([], {"top_k": 5}, 9)
        assert "secret" not in json.dumps(sampling)


async def there_are_two() -> bool:
    return len(await rows()) == 2


async def test_a_prompt_that_was_read_counts_against_the_minute(house: House, caller: Caller, chat: Chat) -> None:
    """Nothing is billed, but whoever hangs up before the first token has had an engine read it."""
    await run_db(lambda: Plan.objects.update(tokens_per_minute=3000))  # 50 drain in a second
    known_plans.clear()
    engine = await house.engine(first_token_seconds=30)
    await house.runner()
    async with caller.open("POST", PATH, chat("word " * 1000, max_tokens=5)):
        await wait_until(lambda: engine.running == 1)
    await over(house)
    [entry] = await run_db(lambda: list(LedgerEntry.objects.all()))
    assert (entry.input, entry.output, entry.cost) == (0, 0, 0)
    [row] = await rows()
    plan = await run_db(plan_of, house.person.organization.id)
    [standing] = (await remaining(house.person.principal, plan)).standings
    assert row.prompt_tokens > 1000
    assert plan.tokens_per_minute == 3000
    assert row.prompt_tokens - 15 * 50 < standing.tokens <= row.prompt_tokens


async def test_one_that_never_reached_an_engine_counts_nothing(
    house: House, caller: Caller, chat: Chat, settings: Any
) -> None:
    await atune(lanes=patience(0.5))
    await house.runner()
    assert (await caller.call("POST", PATH, chat("word " * 1000))).status == 503
    await over(house)
    plan = await run_db(plan_of, house.person.organization.id)
    [standing] = (await remaining(house.person.principal, plan)).standings
    assert standing.tokens == 0


async def test_texts_are_kept_where_an_organization_asked_for_it(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    keeping = TextKeeping(organization=house.person.organization)
    await run_db(keeping.save)
    answer = await caller.call("POST", PATH, chat("a river", max_tokens=5, n=2))
    streamed = text_of(chunks_of(await caller.call("POST", PATH, chat("a sea", max_tokens=5, stream=True))))
    first, second, third = await run_db(lambda: list(KeptCall.objects.order_by("id")))
    assert first.prompt == second.prompt == [{"role": "user", "content": "a river"}]
    assert [first.answer, second.answer] == [each["message"]["content"] for each in answer.json()["choices"]]
    assert (third.prompt, third.answer) == ([{"role": "user", "content": "a sea"}], streamed)
    assert {row.owner_id for row in await rows()} == {first.id, second.id, third.id}
    await over(house)


async def test_texts_and_ids_are_continued(house: House, caller: Caller) -> None:
    await house.engine()
    await house.runner()
    path = "/v1/completions"
    answer = await caller.call("POST", path, {"model": "smollm2-135m", "prompt": "Once", "echo": True})
    [choice] = answer.json()["choices"]
    assert answer.json()["object"] == "text_completion"
    assert choice["text"] == "Once" + told(house)[1]
    assert answer.json()["usage"]["completion_tokens"] == 16
    ids = [1, 2, 3]
    body = {"model": "smollm2-135m", "prompt": [ids, [5, 6]], "max_tokens": 3, "n": 2}
    choices = (await caller.call("POST", path, body)).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert {tuple(call.prompt_ids) for call in house.engines[0].calls} >= {(1, 2, 3), (5, 6)}
    too_high = await caller.call("POST", path, {"model": "smollm2-135m", "prompt": [10**8]})
    assert too_high.status == 400
    assert "token ids" in too_high.json()["error"]["message"]


async def test_an_error_has_the_shape_that_clients_expect(house: House, caller: Caller, chat: Chat) -> None:
    stranger = Caller({"authorization": "Bearer sk-nobody"})
    cases = [
        (await stranger.call("POST", PATH, chat()), 401, "invalid_request_error", "invalid_api_key", None),
        (
            await caller.call("POST", PATH, chat(model="gpt-0")),
            404,
            "invalid_request_error",
            "model_not_found",
            "model",
        ),
        (
            await caller.call("POST", PATH, chat("word " * 5000)),
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        ),
        (
            await caller.call("POST", PATH, chat(temperature=3)),
            400,
            "invalid_request_error",
            "decimal_above_max_value",
            "temperature",
        ),
        (await caller.send_bytes("POST", PATH, b"{"), 400, "invalid_request_error", "invalid_input", None),
        (await caller.call("GET", PATH), 405, "invalid_request_error", "method_not_allowed", None),
    ]
    for answer, status, kind, code, param in cases:
        assert answer.status == status, answer.body
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"], error["param"]) == (kind, code, param)
    assert await rows() == []
    await house.nothing_is_held()


async def test_a_model_without_an_engine_answers_503_in_the_end(
    house: House, caller: Caller, chat: Chat, settings: Any
) -> None:
    await atune(lanes=patience(1.0))
    await house.runner()
    answer = await caller.call("POST", PATH, chat(stream=True))
    assert answer.status in (200, 503)
    assert b'"error"' in answer.body
    whole = await caller.call("POST", PATH, chat())
    assert whole.status == 503
    assert int(whole.headers["retry-after"]) > 0
    await over(house)


async def test_s32_a_repeat_with_a_key_is_told_the_same_and_charged_once(
    house: House, caller: Caller, chat: Chat
) -> None:
    await house.engine()
    await house.runner()
    key = str(new_id())
    first = await caller.call("POST", PATH, chat(max_tokens=10), idempotency_key=key)
    again = await caller.call("POST", PATH, chat(max_tokens=10), idempotency_key=key)
    assert again.json() == first.json()
    assert len(await rows()) == 1
    other = await caller.call("POST", PATH, chat(max_tokens=11), idempotency_key=key)
    assert other.status == 422
    from chatsite.redis import async_client

    await async_client().flushdb()
    late = await caller.call("POST", PATH, chat(max_tokens=10), idempotency_key=key)
    assert late.status == 409
    assert late.json()["error"]["code"] == "idempotency_expired"


async def test_models_are_listed_and_found(house: House, caller: Caller) -> None:
    listed = (await caller.call("GET", "/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["smollm2-135m"]
    assert (await caller.call("GET", "/v1/models/smollm2-135m")).json()["object"] == "model"
    assert (await caller.call("GET", "/v1/models/none")).status == 404


async def test_s23_of_a_whole_answer_that_fails_no_choice_is_charged(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=500, n=2)) as call:
        await wait_until(lambda: len(engine.calls) == 2 and all(len(each.token_ids) > 5 for each in engine.calls), 5)
        await services.cancel((await rows())[1].id)
        assert (await call.answer()).status == 503
    await over(house)

    async def sums() -> list[tuple[int, int]]:
        return await run_db(
            lambda: [
                (sum(each.output for each in entries), sum(each.cost for each in entries))
                for row in Request.objects.all()
                if (entries := list(LedgerEntry.objects.filter(request_id=row.id)))
            ]
        )

    async def taken_back() -> bool:
        return await sums() == [(0, 0), (0, 0)]

    await wait_until(taken_back, 5)
    assert {row.status for row in await rows()} == {"cancelled"}
