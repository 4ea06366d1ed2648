"""The fake engine speaks as the real one does, and says what it should."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientConnectionError, ClientError, ClientSession

from tests.fakes.engine import FakeEngine, Options
from tests.fakes.engine_tokens import FakeModel, Vocabulary, bundled_model
from tests.waiting import wait_until, wait_until_sync

PROMPT = [1, 4093, 198]
ASKED = {
    "model": "smollm2-135m",
    "prompt": PROMPT,
    "max_tokens": 3,
    "stream": True,
    "return_token_ids": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
# Recorded from vLLM 0.32 with ASKED, and other bodies below.
REAL_FIRST = (
    '{"id":"cmpl-9d4ccd3ab91676d2","object":"text_completion","created":1795983968,"model":"smollm2-135m","choices":'
    '[{"index":0,"text":"The","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,4093,198],'
    '"token_ids":[504]}],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1}}'
)
REAL_NEXT = (
    '{"id":"cmpl-9d4ccd3ab91676d2","object":"text_completion","created":1795983968,"model":"smollm2-135m","choices":'
    '[{"index":0,"text":" original","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    '"token_ids":[2798]}],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}'
)
REAL_FINISH = (
    '{"id":"cmpl-9d4ccd3ab91676d2","object":"text_completion","created":1795983968,"model":"smollm2-135m","choices":'
    '[{"index":0,"text":" is","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,'
    '"token_ids":[314]}],"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3}}'
)
REAL_USAGE = (
    '{"id":"cmpl-9d4ccd3ab91676d2","object":"text_completion","created":1795983968,"model":"smollm2-135m","choices":[],'
    '"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}},'
    '"system_fingerprint":"vllm-0.32.0-96b59940"}'
)
REAL_WHOLE = (
    '{"id":"cmpl-98b12ee92b14a0aa","object":"text_completion","created":1795983972,"model":"smollm2-135m","choices":'
    '[{"index":0,"text":"\\nAny","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[198,10518],'
    '"prompt_logprobs":null,"prompt_token_ids":[1,4093,198],"routed_experts":null}],"service_tier":null,'
    '"system_fingerprint":"vllm-0.32.0-96b59940","usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,'
    '"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":null},'
    '"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)
REAL_REFUSALS = {
    '{"error":{"message":"The model `x` does not exist. Valid aliases: smollm2-135m.","type":"NotFoundError",'
    '"param":"model","code":404}}': {"model": "x"},
    '{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",'
    '"type":"BadRequestError","param":"max_tokens","code":400}}': {"max_tokens": 0},
    '{"error":{"message":"min_tokens must be less than or equal to max_tokens=2, got 5.","type":"BadRequestError",'
    '"param":null,"code":400}}': {"max_tokens": 2, "min_tokens": 5},
    '{"error":{"message":"max_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer output '
    'tokens. (parameter=max_tokens, value=5000)","type":"BadRequestError","param":"max_tokens","code":400}}': {
        "max_tokens": 5000
    },
    '{"error":{"message":"Token id 999999 is out of vocabulary","type":"BadRequestError","param":null,"code":400}}': {
        "prompt": [1, 999999]
    },
    '{"error":{"message":"You must pass at least one prompt","type":"BadRequestError","param":null,"code":400}}': {
        "prompt": []
    },
}


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(Options(), model=bundled_model()) as running:
        yield running


@pytest_asyncio.fixture
async def http() -> AsyncIterator[ClientSession]:
    async with ClientSession() as session:
        yield session


async def events(http: ClientSession, fake: FakeEngine, path: str = "/v1/completions", **changes: Any) -> list[str]:
    async with http.post(fake.url + path, json={**ASKED, **changes}) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        text = await response.text()
    assert text.endswith("\n\n")
    lines = text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


def ids_in(lines: list[str]) -> list[int]:
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    return [token_id for chunk in chunks for choice in chunk["choices"] for token_id in choice["token_ids"]]


def alike(ours: object, real: object) -> None:
    """The same fields in the same order, of the same kinds, and the same where nothing was made up."""
    if isinstance(real, dict):
        assert isinstance(ours, dict)
        assert list(ours) == list(real)
        for key in set(real) - {"id", "created", "text", "token_ids", "system_fingerprint"}:
            alike(ours[key], real[key])
        for key in set(real) & {"id", "created", "text", "system_fingerprint"}:
            assert type(ours[key]) is type(real[key])
    elif isinstance(real, list):
        assert isinstance(ours, list)
        assert len(ours) == len(real)
        for one, other in zip(ours, real, strict=True):
            alike(one, other)
    else:
        assert ours == real


class TestShapes:
    async def test_a_stream(self, fake: FakeEngine, http: ClientSession) -> None:
        lines = await events(http, fake)
        assert len(lines) == 5
        for ours, real in zip(lines[:4], [REAL_FIRST, REAL_NEXT, REAL_FINISH, REAL_USAGE], strict=True):
            alike(json.loads(ours), json.loads(real))
            assert ours == json.dumps(json.loads(ours), separators=(",", ":"), ensure_ascii=False)
        assert lines[4] == "[DONE]"

    async def test_a_stream_without_what_was_not_asked_for(self, fake: FakeEngine, http: ClientSession) -> None:
        lines = await events(http, fake, stream_options=None, return_token_ids=False)
        assert len(lines) == 4
        assert "usage" not in json.loads(lines[0])
        assert json.loads(lines[0])["choices"][0]["token_ids"] is None

    async def test_a_whole_answer(self, fake: FakeEngine, http: ClientSession) -> None:
        async with http.post(
            fake.url + "/v1/completions", json={**ASKED, "max_tokens": 2, "stream": False}
        ) as response:
            alike(json.loads(await response.text()), json.loads(REAL_WHOLE))

    @pytest.mark.parametrize("real", REAL_REFUSALS)
    async def test_refusals(self, real: str, fake: FakeEngine, http: ClientSession) -> None:
        async with http.post(fake.url + "/v1/completions", json={**ASKED, **REAL_REFUSALS[real]}) as response:
            assert await response.text() == real
            assert response.status == json.loads(real)["error"]["code"]

    async def test_the_error_of_a_dead_core(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.faults.stream, fake.faults.after = "error", 1
        lines = await events(http, fake)
        assert lines[1:] == [
            '{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", '
            '"type": "InternalServerError", "param": null, "code": 500}}',
            "[DONE]",
        ]

    async def test_tokenize(self, fake: FakeEngine, http: ClientSession) -> None:
        body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post(fake.url + "/tokenize", json=body) as response:
            assert await response.text() == (
                '{"count":31,"max_model_len":4096,"tokens":[1,9690,198,2683,359,253,5356,5646,11173,3365,3511,308,34519,'
                '28,7018,411,407,19712,8182,2,198,1,4093,198,6004,2,198,1,520,9531,198],"token_strs":null}'
            )

    async def test_a_reply_ends_at_the_end_of_the_context(self, fake: FakeEngine, http: ClientSession) -> None:
        lines = await events(http, fake, prompt=[5] * 4000, max_tokens=500)
        assert len(ids_in(lines)) == 96

    async def test_other_paths(self, fake: FakeEngine, http: ClientSession) -> None:
        for method, path, status in (("GET", "/nope", 404), ("GET", "/v1/completions", 405), ("GET", "/health", 200)):
            async with http.request(method, fake.url + path) as response:
                assert response.status == status

    async def test_chat(self, fake: FakeEngine, http: ClientSession) -> None:
        """For measuring it with a client of that API."""
        messages = [{"role": "user", "content": "hi"}]
        lines = await events(http, fake, "/v1/chat/completions", messages=messages, prompt=None)
        chunks = [json.loads(line) for line in lines[:-1]]
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
        assert text.count("w") == 3


class TestTokens:
    @pytest.mark.parametrize("model", [FakeModel(), bundled_model()])
    def test_each_has_one_w_and_the_models_own_id(self, model: FakeModel) -> None:
        ids = model.vocabulary.expect(PROMPT, 300)
        texts = [model.vocabulary.text([token_id]) for token_id in ids]
        assert {text.count("w") for text in texts} == {1}
        assert len(set(texts)) > 50
        if model is bundled_model():
            assert model.text_ids("".join(texts)) == ids

    @pytest.mark.parametrize("emoji", [0.0, 0.3])
    def test_any_cut_goes_on_as_if_there_were_none(self, emoji: float) -> None:
        vocabulary = bundled_model().vocabulary
        whole = vocabulary.expect(PROMPT, 60, emoji)
        for cut in range(60):
            assert vocabulary.expect(PROMPT + whole[:cut], 60 - cut, emoji) == whole[cut:]

    def test_one_token_more_or_less_changes_all_that_follows(self) -> None:
        vocabulary = bundled_model().vocabulary
        whole = vocabulary.expect(PROMPT, 40)
        for changed in (PROMPT[1:], [*PROMPT, 5], [*PROMPT, whole[0], whole[0]], [1, 4094, 198]):
            assert sum(a == b for a, b in zip(whole, vocabulary.expect(changed, 40), strict=True)) < 5

    def test_emoji_take_several_tokens(self) -> None:
        vocabulary = bundled_model().vocabulary
        ids = vocabulary.expect(PROMPT, 60, 0.5)
        text = vocabulary.text(ids)
        assert sum(text.count(sign) for sign in vocabulary.emoji.values()) > 5
        assert bundled_model().text_ids(text) == ids[: len(bundled_model().text_ids(text))]

    async def test_a_script_is_said_word_by_word_and_goes_on_after_a_cut(
        self, fake: FakeEngine, http: ClientSession
    ) -> None:
        fake.options.script = 'Say "this":\n\n```\n  a = 1\n```\n'
        chunks = [json.loads(line)["choices"] for line in (await events(http, fake, max_tokens=50))[:-1]]
        said = [choice for [choice] in filter(None, chunks)]
        assert "".join(choice["text"] for choice in said) == fake.options.script
        assert said[-1]["finish_reason"] == "stop"
        cut = [token_id for choice in said[:3] for token_id in choice["token_ids"]]
        rest = [json.loads(line)["choices"] for line in (await events(http, fake, prompt=[*PROMPT, *cut]))[:-1]]
        assert [choice["text"] for [choice] in filter(None, rest)] == [choice["text"] for choice in said[3:6]]

    def test_a_prompt_that_ends_inside_an_emoji_spoils_the_engines_text_as_in_vllm(self) -> None:
        vocabulary = bundled_model().vocabulary
        word, emoji = vocabulary.expect(PROMPT, 1), next(iter(vocabulary.emoji))
        spoiled = vocabulary.start([*PROMPT, *word, *emoji[:2]]).piece(emoji[2])
        assert spoiled == vocabulary.text(word) + vocabulary.emoji[emoji]


class TestPace:
    async def test_tokens_per_second_of_each_stream(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.tokens_per_second = 100
        started = time.perf_counter()
        await asyncio.gather(*(events(http, fake, prompt=[n], max_tokens=50) for n in range(1, 9)))
        assert 0.45 < time.perf_counter() - started < 1.5

    async def test_time_to_the_first_token_by_what_is_not_cached(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.first_token_seconds, fake.options.prefill_tokens_per_second = 0.1, 1000
        took = []
        for _ in range(2):
            started = time.perf_counter()
            await events(http, fake, prompt=[7] * 257, max_tokens=1)
            took.append(time.perf_counter() - started)
        assert took[0] > 0.35
        assert 0.1 < took[1] < 0.3

    async def test_tokens_per_chunk(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.tokens_per_chunk = 4
        lines = await events(http, fake, max_tokens=10)
        assert [len(json.loads(line)["choices"][0]["token_ids"]) for line in lines[:-2]] == [4, 4, 2]
        assert ids_in(lines) == fake.model.vocabulary.expect(PROMPT, 10)

    async def test_slots_and_a_queue(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.max_num_seqs, fake.options.tokens_per_second = 2, 50
        tasks = [asyncio.create_task(events(http, fake, prompt=[n], max_tokens=10)) for n in range(1, 6)]
        await wait_until(lambda: fake.running == 2 and fake.waiting == 3)
        async with http.get(fake.url + "/metrics") as response:
            metrics = await response.text()
        assert 'vllm:num_requests_running{engine="0",model_name="smollm2-135m"} 2.0\n' in metrics
        assert 'vllm:num_requests_waiting{engine="0",model_name="smollm2-135m"} 3.0\n' in metrics
        await asyncio.gather(*tasks)
        assert (fake.running, fake.waiting, fake.finished) == (0, 0, 5)

    async def test_prompts_are_read_one_after_the_other(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.prefill_tokens_per_second = 1000
        started = time.perf_counter()
        await asyncio.gather(*(events(http, fake, prompt=[n] * 100, max_tokens=1) for n in range(1, 5)))
        assert 0.4 <= time.perf_counter() - started < 1.5

    async def test_who_does_not_fit_into_memory_waits(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.block_size, fake.options.kv_blocks, fake.options.tokens_per_second = 16, 8, 100
        tasks = [asyncio.create_task(events(http, fake, prompt=[n] * 40, max_tokens=5)) for n in range(1, 5)]
        await wait_until(lambda: fake.running == 2 and fake.waiting == 2)  # three blocks each
        await asyncio.gather(*tasks)
        assert (fake.finished, fake.preemptions) == (4, 0)

    async def test_the_youngest_gives_way_and_goes_on_later(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.block_size, fake.options.kv_blocks, fake.options.tokens_per_second = 16, 8, 400
        prompts = [[n] * 40 for n in (1, 2)]
        found = await asyncio.gather(*(events(http, fake, prompt=prompt, max_tokens=60) for prompt in prompts))
        expected = [fake.model.vocabulary.expect(prompt, 60) for prompt in prompts]
        assert [ids_in(lines) for lines in found] == expected  # no token is lost or said twice
        assert fake.preemptions >= 1

    async def test_a_client_that_does_not_read_holds_nobody_up(self, fake: FakeEngine, http: ClientSession) -> None:
        async with http.post(fake.url + "/v1/completions", json={**ASKED, "max_tokens": 4000}):
            for _ in range(20):
                assert len(await events(http, fake, max_tokens=100)) == 102

    async def test_a_stream_that_leaves_is_seen_at_once(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.first_token_seconds = 60
        response = await http.post(fake.url + "/v1/completions", json=ASKED)
        assert fake.running == 1
        response.close()
        await wait_until(lambda: fake.aborted == 1, within=0.05)
        assert (fake.running, fake.calls[-1].outcome) == (0, "aborted")

    async def test_end_of_reply_by_chance_but_not_before_min_tokens(
        self, fake: FakeEngine, http: ClientSession
    ) -> None:
        fake.options.stop = 0.5
        lines = await events(http, fake, max_tokens=500, min_tokens=30)
        assert 30 < len(ids_in(lines)) < 60
        assert ids_in(lines)[-1] == fake.model.vocabulary.eos_id
        assert json.loads(lines[-3])["choices"][0]["finish_reason"] == "stop"


class TestControl:
    async def test_over_http(self, fake: FakeEngine, http: ClientSession) -> None:
        await http.post(fake.url + "/fake/options", json={"tokens_per_second": 40.0})
        await http.post(fake.url + "/fake/faults", json={"status": 500})
        assert (fake.options.tokens_per_second, fake.faults.status) == (40.0, 500)
        await http.post(fake.url + "/fake/reset")
        assert fake.faults.status == 0
        await events(http, fake)
        async with http.get(fake.url + "/fake/state") as response:
            state = await response.json()
        assert (state["finished"], state["tokens"], state["running"]) == (1, 3, 0)
        async with http.get(fake.url + "/fake/calls") as response:
            [call] = await response.json()
        assert call["prompt_ids"] == PROMPT
        assert call["token_ids"] == fake.model.vocabulary.expect(PROMPT, 3)
        assert call["outcome"] == "finished"

    async def test_refusing_for_a_while(self, fake: FakeEngine, http: ClientSession) -> None:
        await http.post(fake.url + "/fake/refuse", json={"seconds": 0.2})
        async with ClientSession() as other:
            with pytest.raises(ClientConnectionError):
                await other.get(fake.url + "/health")

            async def answers() -> bool:
                try:
                    async with other.get(fake.url + "/health") as response:
                        return response.status == 200
                except ClientConnectionError:
                    return False

            await wait_until(answers)

    async def test_killed_and_started_again(self, fake: FakeEngine, http: ClientSession) -> None:
        fake.options.tokens_per_second = 50
        task = asyncio.create_task(events(http, fake, max_tokens=500))
        await wait_until(lambda: fake.tokens > 3)
        port = fake.port
        fake.kill()
        with pytest.raises(ClientError):
            await task
        assert (fake.running, fake.aborted) == (0, 0)
        await fake.start()
        assert fake.port == port
        assert len(await events(http, fake)) == 5


class TestProcess:
    @pytest.fixture
    def process(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        command = [sys.executable, "-m", "tests.fakes.engine", "--tokens-per-second", "50", "--model", "other"]
        folder = Path(__file__).parents[2]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as started:
            assert started.stdout is not None
            yield started, started.stdout.readline().split()[-1]
            started.kill()

    async def test_serves_and_dies_as_by_kill_9(
        self, process: tuple[subprocess.Popen[str], str], http: ClientSession
    ) -> None:
        started, url = process
        made_up = Vocabulary.made_up()
        async with http.post(url + "/v1/completions", json={**ASKED, "model": "other"}) as response:
            lines = [line[6:] for line in (await response.text()).split("\n\n") if line]
        assert ids_in(lines) == made_up.expect(PROMPT, 3)
        await http.post(url + "/fake/faults", json={"stream": "die", "after": 3})
        asked = {**ASKED, "model": "other", "max_tokens": 9}
        with pytest.raises(ClientError):
            async with http.post(url + "/v1/completions", json=asked) as response:
                await response.text()
        assert wait_until_sync(started.poll) == -9
