"""Calls that are refused before anything is written, each in the form that clients of the OpenAI API expect."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chatsite import raw
from chatsite.asgi import application
from inference import prompts
from inference.models import Request
from tests.asgi_client import Exchange, http_scope
from tests.conversations.callers import Caller
from tests.inference.runner.conftest import House

Chat = Callable[..., dict[str, Any]]
PATHS = ("/v1/chat/completions", "/v1/completions")


def error_of(answer: Any, status: int, code: str = "") -> dict[str, Any]:
    """The four fields, all of them there."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.body
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert not code or error["code"] == code
    assert answer.headers["x-request-id"]
    return dict(error)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"model": "\xff"}',
        rb'{"model": "\ud800"}',
        b'{"model": NaN}',
        b"[" * 100_000,
        b'{"user": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_broken_body_is_refused(house: House, caller: Caller, path: str, body: bytes) -> None:
    answer = await caller.send_bytes("POST", path, body)
    assert error_of(answer, 400)["code"] in ("invalid_input", "invalid_type", "invalid_value")


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_of_ten_megabytes_is_too_large(house: House, caller: Caller, chat: Chat, path: str) -> None:
    body = json.dumps(chat("x" * 10_000_000)).encode()
    error_of(await caller.send_bytes("POST", path, body), 413, "too_large")


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_does_not_arrive_is_not_waited_for(
    house: House, caller: Caller, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "BODY_SECONDS", 0.05)
    slow = Exchange(application, http_scope("POST", path, caller.headers, b"{"), b"")
    slow._incoming.get_nowait()
    slow._incoming.put_nowait({"type": "http.request", "body": b"{", "more_body": True})  # and nothing more
    error_of(await slow.answer(), 408, "request_timeout")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_another_kind_of_body_is_refused(house: House, caller: Caller, chat: Chat, kind: str) -> None:
    body = json.dumps(chat()).encode()
    answer = await caller.send_bytes("POST", PATHS[0], body, content_type=kind)
    error_of(answer, 415, "unsupported_media_type")


async def test_a_kind_may_have_a_charset(house: House, caller: Caller, chat: Chat) -> None:
    body = json.dumps(chat(n=0)).encode()
    answer = await caller.send_bytes("POST", PATHS[0], body, content_type="Application/JSON; charset=utf-8")
    assert error_of(answer, 400, "integer_below_min_value")["param"] == "n"


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ä"])
async def test_a_key_that_is_none_is_refused(house: House, caller: Caller, chat: Chat, key: str) -> None:
    answer = await caller.call("POST", PATHS[0], chat(), idempotency_key=key)
    assert error_of(answer, 400, "invalid_input")["param"] == "Idempotency-Key"


async def test_a_refused_call_leaves_nothing_and_says_where_its_caller_stands(
    house: House, caller: Caller, chat: Chat
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"m": 10**30, "\0": "\0"}}}
    for change in (
        {"n": 129},
        {"max_tokens": 5000},
        {"tool_choice": "required"},
        {"model": "none"},
        {"foo": 1},
        {"stop": "\0"},
        {"response_format": form},
        {"min_tokens": 2000},  # more than an answer has that says nothing about it
    ):
        answer = await caller.call("POST", PATHS[0], chat(**change))
        assert answer.status in (400, 404), answer.body
        assert int(answer.headers["x-ratelimit-limit-tokens"]) > 0
    answer = await caller.call("POST", PATHS[0], chat(min_tokens=1025))
    assert error_of(answer, 400, "invalid_value")["param"] == "min_tokens"
    prompts = {"model": "smollm2-135m", "prompt": ["a"] * 129}
    assert error_of(await caller.call("POST", PATHS[1], prompts), 400, "invalid_value")["param"] == "prompt"
    assert await Request.objects.acount() == 0
    await house.nothing_is_held()


@pytest.mark.parametrize("name", ["none", "a/b", "%00", "%ff", "x" * 500, "..", "%2e%2e%2fetc"])
async def test_a_model_that_is_not_there(house: House, caller: Caller, name: str) -> None:
    error_of(await caller.call("GET", f"/v1/models/{name}"), 404, "model_not_found")


async def test_a_text_that_is_far_too_long_costs_little(
    house: House, caller: Caller, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two megabytes would take a second of the processor, and a hundred of them the site."""
    encoded: list[int] = []
    encode = prompts._encode
    monkeypatch.setattr(prompts, "_encode", lambda by, texts: encoded.extend(map(len, texts)) or encode(by, texts))
    text = "A river is long. " * 100_000
    for path, body, param in (
        (PATHS[0], chat(text), "messages"),
        (PATHS[0], chat("Hello", messages=[{"role": "user", "content": "A river"}] * 4096), "messages"),
        (PATHS[1], {"model": "smollm2-135m", "prompt": text}, "prompt"),
        (PATHS[1], {"model": "smollm2-135m", "prompt": [7] * 500_000}, "prompt"),
    ):
        encoded.clear()
        answer = await caller.call("POST", path, body)
        error = error_of(answer, 400, "context_length_exceeded")
        assert error["message"].startswith("This model's maximum context length is 4096 tokens. The prompt has ")
        assert error["param"] == param
        assert sum(encoded) < 40_000
    await house.nothing_is_held()


async def test_head_is_answered_as_get_is(house: House, caller: Caller) -> None:
    for path in ("/v1/models", "/v1/models/smollm2-135m", "/v1/models/none"):
        expected, answer = await caller.call("GET", path), await caller.call("HEAD", path)
        assert (answer.status, answer.body) == (expected.status, b"")
        assert answer.headers["content-length"] == str(len(expected.body))
    assert (await caller.call("HEAD", PATHS[0])).status == 405
