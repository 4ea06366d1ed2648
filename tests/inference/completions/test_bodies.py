"""What the bodies of the OpenAI-compatible routes may say, and how the rest is refused."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite.errors import AppError, InvalidInput
from inference.completions.bodies import ChatBody, CompletionBody
from inference.completions.calls import read_chat, read_completion
from inference.protocol import Role, Turn

HELLO = [{"role": "user", "content": "hello"}]
INVALID_TYPE, INVALID_VALUE = "invalid_type", "invalid_value"
INTEGER_BELOW, INTEGER_ABOVE = "integer_below_min_value", "integer_above_max_value"
DECIMAL_BELOW, DECIMAL_ABOVE = "decimal_below_min_value", "decimal_above_max_value"
EMPTY_STRING, LONG_STRING = "empty_string", "string_above_max_length"
EMPTY_ARRAY, LONG_ARRAY = "empty_array", "array_above_max_length"
UNKNOWN, MISSING = "unknown_parameter", "missing_required_parameter"
UNSUPPORTED, UNSUPPORTED_VALUE = "unsupported_parameter", "unsupported_value"


def chat(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "messages": HELLO, **changes}).encode()


def text(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "hello", **changes}).encode()


def raw(**changes: str) -> bytes:
    """A chat with values that are JSON, or nearly so, already."""
    return (chat()[:-1].decode() + "".join(f', "{name}": {value}' for name, value in changes.items()) + "}").encode()


def said(role: str = "user", **changes: Any) -> dict[str, Any]:
    """A chat's only message."""
    return {"messages": [{"role": role, **changes}]}


def schema(**changes: Any) -> dict[str, Any]:
    """A prescribed form."""
    return {"response_format": {"type": "json_schema", "json_schema": changes}}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def refused(data: bytes, read: Any = read_chat) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read(data)
    assert caught.value.status == 400
    return caught.value


def test_a_chat_is_read() -> None:
    call = read_chat(
        chat(
            messages=[
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}],
                    "name": "x",
                },
                {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    "audio": None,
                    "function_call": None,
                    "tool_calls": None,
                },
            ],
            max_tokens=5,
            max_completion_tokens=7,
            stop="x",
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert call.prompts == [[Turn(Role.SYSTEM, "Be brief."), Turn(Role.USER, "a\nb"), Turn(Role.ASSISTANT, "")]]
    assert (call.max_tokens, call.options.stop, call.n) == (7, ("x",), 1)
    assert call.stream and call.include_usage
    assert call.options.extra == {}


@pytest.mark.parametrize("name", sorted({*ChatBody.__struct_fields__} - {"model", "messages"}))
def test_a_null_is_as_good_as_nothing(name: str) -> None:
    assert read_chat(chat(**{name: None})) == read_chat(chat())


@pytest.mark.parametrize(
    "ignored",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"store": True},
        {"service_tier": "auto"},
        {"service_tier": "default"},
        {"safety_identifier": "s"},
        {"prompt_cache_key": "k"},
        {"parallel_tool_calls": False},
        {"tools": []},
        {"functions": []},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"functions": [{"name": "f"}]},
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
        {"function_call": "auto"},
        {"verbosity": "medium"},
        {"modalities": ["text"]},
        {"response_format": {"type": "text"}},
        {"logit_bias": None},
        {"stop": []},
    ],
)
def test_what_changes_nothing_is_taken(ignored: dict[str, Any]) -> None:
    assert read_chat(chat(**ignored)) == read_chat(chat())


def test_the_flex_tier_is_of_both_routes() -> None:
    assert read_chat(chat(service_tier="flex")).flex
    assert read_completion(text(service_tier="flex")).flex
    assert not read_completion(text(service_tier="auto")).flex


def test_what_the_engine_knows_reaches_it() -> None:
    schema = {"name": "x", "schema": {"type": "object"}, "strict": None}
    call = read_chat(
        chat(
            top_k=5,
            min_p=0.1,
            repetition_penalty=1.1,
            ignore_eos=True,
            min_tokens=3,
            logit_bias={"12": -100},
            frequency_penalty=1,
            presence_penalty=-1,
            response_format={"type": "json_schema", "json_schema": schema},
        )
    )
    assert call.options.min_tokens == 3
    assert call.options.extra == {
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
        "logit_bias": {"12": -100},
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    }
    json_object = read_chat(chat(response_format={"type": "json_object"})).options
    assert json_object.extra == {"response_format": {"type": "json_object"}}
    assert json_object.guided


def test_what_is_just_within_the_bounds_is_taken() -> None:
    largest = {"m": 2**63 - 1, "n": [-(2**63)], "deep": nested(61), "text": "x" * 65_000}
    call = read_chat(
        chat(
            stop=["x" * 1000] * 4,
            logit_bias={str(token): 1 for token in range(1024)},
            **schema(name="x", schema=largest),
        )
    )
    assert call.options.stop == ("x" * 1000,) * 4
    assert call.options.extra["response_format"]["json_schema"]["schema"] == largest


def test_half_a_surrogate_pair_is_named() -> None:
    error = refused(chat(messages=[{"role": "user", "content": "x"}, {"role": "user", "content": "\ud800"}]))
    assert (error.code, error.param) == (INVALID_VALUE, "messages[1].content")
    assert "half a surrogate pair" in error.message
    assert refused(chat(stop=["a", "\udc00"])).param == "stop[1]"


def test_prompts_come_in_four_forms() -> None:
    assert read_completion(text()).prompts == ["hello"]
    assert read_completion(text(prompt=["a", "b"])).prompts == ["a", "b"]
    assert read_completion(text(prompt=[1, 2])).prompts == [[1, 2]]
    assert read_completion(text(prompt=[[1], [2, 3]])).prompts == [[1], [2, 3]]
    assert read_completion(text()).max_tokens == 16
    assert read_completion(text(suffix="", best_of=2, n=2)).n == 2


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"foo": 1}, UNKNOWN, "foo"),
        ({"x" * 500: 1}, UNKNOWN, "x" * 100),
        ({"model": ""}, EMPTY_STRING, "model"),
        ({"temperature": -0.1}, DECIMAL_BELOW, "temperature"),
        ({"temperature": 2.1}, DECIMAL_ABOVE, "temperature"),
        ({"top_p": 0}, DECIMAL_BELOW, "top_p"),
        ({"top_p": 1.01}, DECIMAL_ABOVE, "top_p"),
        ({"top_k": -2}, INTEGER_BELOW, "top_k"),
        ({"min_p": 1.5}, DECIMAL_ABOVE, "min_p"),
        ({"repetition_penalty": 0}, DECIMAL_BELOW, "repetition_penalty"),
        ({"n": 0}, INTEGER_BELOW, "n"),
        ({"n": 129}, INTEGER_ABOVE, "n"),
        ({"max_tokens": 0}, INTEGER_BELOW, "max_tokens"),
        ({"max_tokens": -1}, INTEGER_BELOW, "max_tokens"),
        ({"max_tokens": 2**40}, INTEGER_ABOVE, "max_tokens"),
        ({"max_completion_tokens": 0}, INTEGER_BELOW, "max_completion_tokens"),
        ({"min_tokens": -1}, INTEGER_BELOW, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 5}, INVALID_VALUE, "min_tokens"),
        ({"seed": 2**63}, INTEGER_ABOVE, "seed"),
        ({"stop": ["a"] * 5}, LONG_ARRAY, "stop"),
        ({"stop": ""}, EMPTY_STRING, "stop"),
        ({"stop": ["a", ""]}, EMPTY_STRING, "stop[1]"),
        ({"frequency_penalty": 3}, DECIMAL_ABOVE, "frequency_penalty"),
        ({"presence_penalty": -2.5}, DECIMAL_BELOW, "presence_penalty"),
        ({"logit_bias": {"x": 1}}, INVALID_VALUE, "logit_bias"),
        ({"logit_bias": {"1\n": 1}}, INVALID_VALUE, "logit_bias"),
        ({"logit_bias": {"1": 101}}, DECIMAL_ABOVE, "logit_bias[...]"),
        ({"top_logprobs": 3}, INVALID_VALUE, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, INTEGER_ABOVE, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, INVALID_VALUE, "stream_options"),
        ({"stream": True, "stream_options": {"foo": 1}}, UNKNOWN, "stream_options.foo"),
        ({"response_format": {"type": "yaml"}}, INVALID_VALUE, "response_format.type"),
        ({"response_format": {}}, MISSING, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, MISSING, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
            INVALID_VALUE,
            "response_format.json_schema.name",
        ),
        ({"metadata": {"a": 1}}, INVALID_TYPE, "metadata[...]"),
        ({"service_tier": "gold"}, INVALID_VALUE, "service_tier"),
        ({"verbosity": "silent"}, INVALID_VALUE, "verbosity"),
        ({"tool_choice": "never"}, INVALID_VALUE, "tool_choice"),
        ({"tools": ["f"]}, INVALID_TYPE, "tools[0]"),
        ({"functions": [{}] * 1025}, LONG_ARRAY, "functions"),
        ({"messages": []}, EMPTY_ARRAY, "messages"),
        ({"messages": HELLO * 5000}, LONG_ARRAY, "messages"),
        ({"messages": ["x"]}, INVALID_TYPE, "messages[0]"),
        (said("king", content="x"), INVALID_VALUE, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, MISSING, "messages[0].role"),
        (said(), MISSING, "messages[0].content"),
        (said(content=None), INVALID_TYPE, "messages[0].content"),
        (said(content=[]), EMPTY_ARRAY, "messages[0].content"),
        (said(content=[{"type": "text"}]), MISSING, "messages[0].content[0].text"),
        (said(content=["x"]), INVALID_TYPE, "messages[0].content[0]"),
        (said(content="a\0b"), INVALID_VALUE, "messages[0].content"),
        (said(content=[{"type": "text", "text": "a\0b"}]), INVALID_VALUE, "messages[0].content[0].text"),
        ({"stop": "a\0"}, INVALID_VALUE, "stop"),
        ({"stop": ["a", "\0"]}, INVALID_VALUE, "stop[1]"),
        ({"stop": "x" * 1001}, LONG_STRING, "stop"),
        ({"stop": ["a", "x" * 1001]}, LONG_STRING, "stop[1]"),
        ({"model": "a\0"}, INVALID_VALUE, "model"),
        ({"user": "a\0"}, INVALID_VALUE, "user"),
        ({"metadata": {"a": "\0"}}, INVALID_VALUE, "metadata.a"),
        ({"metadata": {"\0": "a"}}, INVALID_VALUE, "metadata"),
        ({"tools": [{"a": {"b\0": 1}}]}, INVALID_VALUE, "tools[0].a"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, INVALID_VALUE, "logit_bias"),
        (schema(name="x", schema={"a\0": 1}), INVALID_VALUE, "response_format.json_schema.schema"),
        (schema(name="x", schema={"a": ["\0"]}), INVALID_VALUE, "response_format.json_schema.schema.a[0]"),
        (schema(name="x", description="\0"), INVALID_VALUE, "response_format.json_schema.description"),
        (schema(name="x", schema={"m": 10**30}), INVALID_VALUE, "response_format.json_schema.schema.m"),
        (schema(name="x", schema={"m": [-(2**63) - 1]}), INVALID_VALUE, "response_format.json_schema.schema.m[0]"),
        (schema(name="x", schema={"m": "x" * 65_536}), INVALID_VALUE, "response_format"),
        (schema(name="x", schema=nested(63)), INVALID_VALUE, "response_format"),
        (schema(name="x", schema=nested(900)), INVALID_VALUE, "response_format"),
        (said(content="x", foo=1), UNKNOWN, "messages[0].foo"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], code: str, param: str) -> None:
    error = refused(chat(**change))
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"tool_choice": "required"}, UNSUPPORTED_VALUE, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, UNSUPPORTED_VALUE, "tool_choice"),
        ({"function_call": {"name": "f"}}, UNSUPPORTED_VALUE, "function_call"),
        ({"audio": {"voice": "alloy"}}, UNSUPPORTED, "audio"),
        ({"prediction": {"type": "content", "content": "x"}}, UNSUPPORTED, "prediction"),
        ({"web_search_options": {}}, UNSUPPORTED, "web_search_options"),
        ({"reasoning_effort": "low"}, UNSUPPORTED, "reasoning_effort"),
        ({"modalities": ["text", "audio"]}, UNSUPPORTED_VALUE, "modalities[1]"),
        ({"verbosity": "low"}, UNSUPPORTED_VALUE, "verbosity"),
        ({"service_tier": "priority"}, UNSUPPORTED_VALUE, "service_tier"),
        (said("tool", content="x", tool_call_id="c"), UNSUPPORTED_VALUE, "messages[0].role"),
        (said("function", content="x", name="f"), UNSUPPORTED_VALUE, "messages[0].role"),
        (said("assistant", tool_calls=[{"id": "c"}]), UNSUPPORTED, "messages[0].tool_calls"),
        (said("assistant", function_call={"name": "f"}), UNSUPPORTED, "messages[0].function_call"),
        (said("assistant", audio={"id": "a"}), UNSUPPORTED, "messages[0].audio"),
        (
            said(content=[{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]),
            UNSUPPORTED_VALUE,
            "messages[0].content[1].type",
        ),
        (said(content=[{"type": "input_audio", "input_audio": {}}]), UNSUPPORTED_VALUE, "messages[0].content[0].type"),
        (said(content=[{"type": "file", "file": {}}]), UNSUPPORTED_VALUE, "messages[0].content[0].type"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(change: dict[str, Any], code: str, param: str) -> None:
    error = refused(chat(**change))
    assert (error.code, error.param) == (code, param)
    assert "not supported" in error.message


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"prompt": ""}, EMPTY_STRING, "prompt"),
        ({"prompt": []}, EMPTY_ARRAY, "prompt"),
        ({"prompt": [""]}, EMPTY_STRING, "prompt[0]"),
        ({"prompt": [[]]}, EMPTY_ARRAY, "prompt[0]"),
        ({"prompt": None}, INVALID_TYPE, "prompt"),
        ({"prompt": ["a", 1]}, INVALID_TYPE, "prompt"),
        ({"prompt": [-1]}, INTEGER_BELOW, "prompt[0]"),
        ({"prompt": [2**31]}, INTEGER_ABOVE, "prompt[0]"),
        ({"prompt": [[1], ["a"]]}, INVALID_TYPE, "prompt[1][0]"),
        ({"prompt": ["a\0"]}, INVALID_VALUE, "prompt[0]"),
        ({"prompt": "a\0"}, INVALID_VALUE, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, INVALID_VALUE, "prompt"),
        ({"suffix": "x"}, UNSUPPORTED, "suffix"),
        ({"best_of": 3}, UNSUPPORTED, "best_of"),
        ({"echo": True, "logprobs": 1}, UNSUPPORTED, "echo"),
        ({"logprobs": 21}, INTEGER_ABOVE, "logprobs"),
        ({"messages": HELLO}, UNKNOWN, "messages"),
        ({"tools": []}, UNKNOWN, "tools"),
    ],
)
def test_what_is_wrong_with_a_text_is_named(change: dict[str, Any], code: str, param: str) -> None:
    error = refused(text(**change), read_completion)
    assert (error.code, error.param) == (code, param)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in (ChatBody, CompletionBody) for name in kind.__struct_fields__],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_value_of_the_wrong_type_is_named(kind: type[msgspec.Struct], name: str) -> None:
    """A list of a list of an object is what no parameter takes."""
    make, read = (chat, read_chat) if kind is ChatBody else (text, read_completion)
    error = refused(make(**{name: [[{}]]}), read)
    assert error.param is not None and error.param.partition("[")[0] == name
    assert error.code in (INVALID_TYPE, UNSUPPORTED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 3}, "Invalid 'temperature': decimal above maximum value. Expected a value <= 2."),
        ({"top_p": 0}, "Invalid 'top_p': decimal below minimum value. Expected a value > 0."),
        ({"max_tokens": 0}, "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1."),
        ({"messages": []}, "Invalid 'messages': empty array. Expected an array with minimum length 1."),
        ({"stop": ["a"] * 5}, "Invalid 'stop': array too long. Expected an array with maximum length 4."),
        ({"stop": [""]}, "Invalid 'stop[0]': empty string. Expected a string with minimum length 1."),
        ({"n": "2"}, "Invalid type for 'n': expected an integer, but got a string instead."),
        ({"stop": 5}, "Invalid type for 'stop': expected a string or an array, but got an integer instead."),
        (
            said(content=None),
            "Invalid type for 'messages[0].content': expected a string or an array, but got null instead.",
        ),
        ({"temperature": True}, "Invalid type for 'temperature': expected a decimal, but got a boolean instead."),
        (
            {"response_format": {"type": None}},
            "Invalid type for 'response_format.type': expected a string, but got null instead.",
        ),
        (said(role=["user"]), "Invalid type for 'messages[0].role': expected a string, but got an array instead."),
        (
            {"logit_bias": {str(n): 1 for n in range(1025)}},
            "Invalid 'logit_bias': too many keys. Expected an object with 1024 keys at most.",
        ),
    ],
)
def test_what_is_wrong_is_told_in_words_of_json(change: dict[str, Any], message: str) -> None:
    assert refused(chat(**change)).message == message


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
