"""The OpenAI-compatible routes, from the body to the engine and back, on real stores and a fake engine."""

from typing import Any

from chatsite.ids import new_id
from chatsite.redis import async_client
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, entries, over, rows, text_of, told
from tests.inference.runner.conftest import House, fake_model
from tests.tuning import atune, patience


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
    [entry] = await entries()
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
    billed = await entries()
    assert sorted(entry.input for entry in billed) == [0, 0, prompt]
    streamed = chunks_of(await caller.call("POST", PATH, chat(max_tokens=5, n=2, stream=True)))
    assert {choice["index"] for chunk in streamed for choice in chunk["choices"]} == {0, 1}


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
    await async_client().flushdb()
    late = await caller.call("POST", PATH, chat(max_tokens=10), idempotency_key=key)
    assert late.status == 409
    assert late.json()["error"]["code"] == "idempotency_expired"


async def test_models_are_listed_and_found(house: House, caller: Caller) -> None:
    listed = (await caller.call("GET", "/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["smollm2-135m"]
    assert (await caller.call("GET", "/v1/models/smollm2-135m")).json()["object"] == "model"
    assert (await caller.call("GET", "/v1/models/none")).status == 404
