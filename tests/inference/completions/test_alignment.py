"""Log probabilities come once, with the text they are of, at the right places."""

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from chatsite.redis import async_client
from inference.completions.alignment import Alignment, PlacedToken
from inference.detokenizer import Detokenizer
from inference.events import pack_ids
from inference.prompts import ChatTokenizer
from inference.protocol import TokensEvent
from inference.vllm_wire import TokenLogprob
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, told
from tests.inference.runner.conftest import MODEL_PATH, House, fake_model
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer.load(Path(MODEL_PATH))


def ids_of(tokenizer: ChatTokenizer, text: str) -> list[int]:
    return tokenizer.encode_texts([text])[0]


def entry(ids: Iterable[int], before: int = 0) -> TokensEvent:
    ids = list(ids)
    logprobs = [TokenLogprob(f"<{each}>", -1.0) for each in ids]
    return TokensEvent("", before + len(ids), 0, "", msgspec.json.encode(logprobs), pack_ids(ids))


def places(found: Iterable[PlacedToken]) -> list[tuple[str, int]]:
    return [(each.logprob.token, each.offset) for each in found]


def starts(tokenizer: ChatTokenizer, ids: list[int]) -> list[tuple[str, int]]:
    decoder: Detokenizer = tokenizer.decoder([])
    found, at = [], 0
    for each in ids:
        found.append((f"<{each}>", at))
        at += len(decoder.feed([each]))
    return found


def test_a_token_waits_for_its_text(tokenizer: ChatTokenizer) -> None:
    ids = ids_of(tokenizer, "The river 🌊 is wide")
    expected = starts(tokenizer, ids)
    alignment = Alignment(tokenizer.decoder([]))
    alignment.add(entry(ids))
    assert places(alignment.shown(0)) == []
    assert places(alignment.shown(3)) == [each for each in expected if each[1] < 3]
    assert places(alignment.shown(11)) == [each for each in expected if 3 <= each[1] < 11]
    assert places(alignment.rest(19)) == [each for each in expected if each[1] >= 11]


def test_what_was_cut_off_is_not_given(tokenizer: ChatTokenizer) -> None:
    text = "The river is wide, and so is the sea"
    ids, cut = ids_of(tokenizer, text), text.index(" and so")
    alignment = Alignment(tokenizer.decoder([]))
    alignment.add(entry(ids))
    given = [*alignment.shown(cut), *alignment.rest(cut)]
    assert places(given) == [each for each in starts(tokenizer, ids) if each[1] < cut]


def test_a_token_without_text_comes_at_the_end(tokenizer: ChatTokenizer) -> None:
    end = next(iter(tokenizer.eos_ids))
    ids = [*ids_of(tokenizer, "The sea"), end]
    alignment = Alignment(tokenizer.decoder([]))
    alignment.add(entry(ids))
    assert len(alignment.shown(7)) == len(ids) - 1
    assert places(alignment.rest(7)) == [(f"<{end}>", 7)]


def test_what_the_log_has_twice_is_given_once(tokenizer: ChatTokenizer) -> None:
    ids = ids_of(tokenizer, "The river is wide")
    alignment = Alignment(tokenizer.decoder([]))
    alignment.add(entry(ids[:2]))
    first = alignment.shown(100)
    alignment.add(entry(ids[:2]))  # again
    alignment.add(entry(ids))  # again, with more
    assert places([*first, *alignment.rest(100)]) == starts(tokenizer, ids)


def test_without_a_decoder_tokens_come_as_they_are_spelled() -> None:
    alignment = Alignment(None)
    logprobs = msgspec.json.encode([TokenLogprob("The", -1.0), None, TokenLogprob(" sea", -1.0)])
    alignment.add(TokensEvent("", 3, 0, "", logprobs, pack_ids([1, 2, 3])))
    assert places(alignment.shown(0)) == [("The", 0), (" sea", 3)]


async def test_each_token_comes_once_though_redis_is_emptied(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=60)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=90, stream=True, logprobs=True)) as call:
        await wait_until(lambda: len(call.received.chunks) > 12, 5)
        await async_client().flushdb()
        chunks = chunks_of(await call.answer(15))
    tokens = [
        one["token"]
        for chunk in chunks
        for choice in chunk["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert tokens == [f"<{each}>" for each in told(house)[0]]


async def test_a_stop_string_s_tokens_are_not_told(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    whole = (await caller.call("POST", PATH, chat(max_tokens=60))).json()["choices"][0]["message"]["content"]
    words = whole.split(" ")
    stop = " ".join(words[10:14])
    shown = whole[: whole.index(stop)]
    ids = told(house)[0]
    expected, text = [], ""
    for each in ids:
        if len(text) < len(shown):
            expected.append(f"<{each}>")
        text += fake_model.vocabulary.text([each])
    for stream in (False, True):
        body = chat(max_tokens=60, stop=stop, logprobs=True, stream=stream)
        answer = await caller.call("POST", PATH, body)
        if stream:
            found = [c["logprobs"] for chunk in chunks_of(answer) for c in chunk["choices"] if c["logprobs"]]
            tokens = [one["token"] for each in found for one in each["content"]]
        else:
            [choice] = answer.json()["choices"]
            assert choice["message"]["content"] == shown
            tokens = [one["token"] for one in choice["logprobs"]["content"]]
        assert tokens == expected, stream


async def test_offsets_are_where_a_token_s_text_begins(house: House, caller: Caller) -> None:
    await house.engine()
    await house.runner()
    body = {"model": "smollm2-135m", "prompt": "Once", "max_tokens": 12, "logprobs": 1}
    for stream in (False, True):
        answer = await caller.call("POST", "/v1/completions", {**body, "stream": stream})
        if stream:
            found = [c["logprobs"] for chunk in chunks_of(answer) for c in chunk["choices"] if c["logprobs"]]
            offsets = [offset for each in found for offset in each["text_offset"]]
        else:
            offsets = json.loads(answer.body)["choices"][0]["logprobs"]["text_offset"]
        lengths = [len(fake_model.vocabulary.text([each])) for each in told(house)[0]]
        assert offsets == [sum(lengths[:index]) for index in range(12)]
