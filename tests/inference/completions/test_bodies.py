"""What the bodies of the OpenAI-compatible routes may say, and how the rest is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite.errors import AppError, InvalidInput
from inference.completions.bodies import read_chat, read_completion
from inference.protocol import Role, Turn

HELLO = [{"role": "user", "content": "hello"}]


def chat(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "messages": HELLO, **changes}).encode()


def text(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "hello", **changes}).encode()


def test_a_chat_is_read() -> None:
    call = read_chat(
        chat(
            messages=[
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    "name": "x",
                },
                {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "annotations": []},
            ],
            max_tokens=5,
            max_completion_tokens=7,
            stop="x",
            user="u",
            metadata={"a": "b"},
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert call.prompts == [[Turn(Role.SYSTEM, "Be brief."), Turn(Role.USER, "a\nb"), Turn(Role.ASSISTANT, "")]]
    assert (call.max_tokens, call.options.stop, call.n) == (7, ("x",), 1)
    assert call.stream and call.include_usage
    assert call.options.extra == {}


def test_a_null_is_as_good_as_nothing() -> None:
    names = (
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "max_tokens",
        "tools",
        "stream",
        "stream_options",
        "logit_bias",
    )
    assert read_chat(chat(**dict.fromkeys(names))) == read_chat(chat())


def test_prompts_come_in_four_forms() -> None:
    assert read_completion(text()).prompts == ["hello"]
    assert read_completion(text(prompt=["a", "b"])).prompts == ["a", "b"]
    assert read_completion(text(prompt=[1, 2])).prompts == [[1, 2]]
    assert read_completion(text(prompt=[[1], [2, 3]])).prompts == [[1], [2, 3]]
    assert read_completion(text()).max_tokens == 16


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"foo": 1}, "unknown_parameter", "foo"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"temperature": -0.1}, "invalid_value", "temperature"),
        ({"temperature": 2.1}, "invalid_value", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"n": 0}, "invalid_value", "n"),
        ({"n": 1.5}, "invalid_type", "n"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": 2**40}, "invalid_value", "max_tokens"),
        ({"min_tokens": 9, "max_tokens": 5}, "invalid_value", "min_tokens"),
        ({"stop": ["a"] * 5}, "invalid_value", "stop"),
        ({"stop": ""}, "invalid_value", "stop"),
        ({"frequency_penalty": 3}, "invalid_value", "frequency_penalty"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias[...]"),
        ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "missing_required_parameter", "response_format"),
        ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
        ({"modalities": ["audio"]}, "unsupported_parameter", "modalities"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": HELLO * 5000}, "invalid_value", "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "unsupported_parameter", "messages[0].role"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "invalid_value", "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_chat(chat(**change))
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"prompt": ""}, "invalid_value", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": [[]]}, "invalid_value", "prompt"),
        ({"prompt": ["a", 1]}, "invalid_type", "prompt"),
        ({"prompt": [-1]}, "invalid_value", "prompt[0]"),
        ({"prompt": ["a"] * 65, "n": 2}, "invalid_value", "prompt"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"best_of": 3}, "unsupported_parameter", "best_of"),
        ({"messages": HELLO}, "unknown_parameter", "messages"),
    ],
)
def test_what_is_wrong_with_a_text_is_named(change: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_completion(text(**change))
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": "m"}'])
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_chat(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda part: st.lists(part) | st.dictionaries(st.text(), part),
        max_leaves=8,
    )
)
def test_no_value_of_any_parameter_is_an_error_of_ours(value: Any) -> None:
    for name in ("model", "messages", "stop", "response_format", "logit_bias", "stream_options", "seed", "n", "user"):
        try:
            read_chat(chat(**{name: value}))
        except AppError as error:
            assert error.status == 400
