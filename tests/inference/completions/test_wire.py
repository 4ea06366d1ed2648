"""Chunks and answers in the form of the reference."""

import json

import pytest

from inference.completions.alignment import PlacedToken
from inference.completions.wire import AnswerHead, Chunks, Whole, logprobs_of, usage_of
from inference.protocol import Result
from inference.vllm_wire import TokenLogprob


def result(reason: str = "stop", **changes: int) -> Result:
    return Result("succeeded", reason, "", "", **{"input": 7, "cached": 3, "output": 2, **changes})


def parsed(chunk: bytes) -> dict[str, object]:
    assert chunk.startswith(b"data: ")
    assert chunk.endswith(b"\n\n")
    found: dict[str, object] = json.loads(chunk[6:])
    return found


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("chat", [True, False])
def test_every_chunk_is_json_with_the_same_head(chat: bool, usage: bool) -> None:
    chunks = Chunks(AnswerHead(chat=chat, id="x-1", created=5, model='a"b'), usage=usage)
    text = 'say "hi"\n\u2028🌊'
    found = [parsed(chunk) for chunk in (chunks.text(1, text, None), chunks.end(1, result()))]
    for each in found:
        assert (each["id"], each["created"], each["model"]) == ("x-1", 5, 'a"b')
        assert ("usage" in each) is usage
    [first], [last] = found[0]["choices"], found[1]["choices"]  # type: ignore[misc]
    assert (first["delta"]["content"] if chat else first["text"]) == text
    assert first["finish_reason"] is None
    assert first["index"] == 1
    assert last["finish_reason"] == "stop"
    assert parsed(chunks.usage(7, [result()]))["usage"] == usage_of(7, [result()])


@pytest.mark.parametrize(("ours", "theirs"), [("stop", "stop"), ("length", "length"), ("quota", "length")])
def test_how_it_ended_is_said_in_their_words(ours: str, theirs: str) -> None:
    whole = Whole(AnswerHead(chat=True, id="x", created=1, model="m"), prompts=[""], n=1)
    whole.results[0] = result(ours)
    assert whole.answer(7, logprobs=False)["choices"][0]["finish_reason"] == theirs


def test_usage_counts_each_prompt_once() -> None:
    assert usage_of(7, [result(), result(input=0, cached=0)]) == {
        "prompt_tokens": 7,
        "completion_tokens": 4,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_log_probabilities_have_the_form_of_their_route() -> None:
    placed = [PlacedToken(TokenLogprob("é", -0.5, {"é": -0.5, "e": None}), 3)]
    chat = logprobs_of(placed, chat=True, top=2)
    [one] = chat["content"]
    assert (one["token"], one["logprob"], one["bytes"]) == ("é", -0.5, [195, 169])
    assert one["top_logprobs"][1] == {"token": "e", "logprob": -9999.0, "bytes": [101]}
    text = logprobs_of(placed, chat=False)
    assert text["tokens"] == ["é"]
    assert text["top_logprobs"] == [{"é": -0.5, "e": None}]
    assert text["text_offset"] == [3]


@pytest.mark.parametrize(("top", "told"), [(0, []), (1, ["b"]), (2, ["b", "c"]), (3, ["b", "c", "a"])])
def test_a_chat_is_told_of_as_many_likely_tokens_as_it_asked_for(top: int, told: list[str]) -> None:
    """The engine adds the sampled one, wherever it stands."""
    sampled = PlacedToken(TokenLogprob("a", -3.0, {"a": -3.0, "b": -0.1, "c": -2.5}), 0)
    [one] = logprobs_of([sampled], chat=True, top=top)["content"]
    assert (one["token"], [each["token"] for each in one["top_logprobs"]]) == ("a", told)
