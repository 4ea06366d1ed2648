"""Bodies that are no JSON, or nearly: refused, or read as the reference reads them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.completions.bodies import ChatBody
from inference.completions.calls import read_chat
from inference.completions.decoding import by_last
from tests.inference.completions.test_bodies import (
    INTEGER_ABOVE,
    INTEGER_BELOW,
    INVALID_TYPE,
    INVALID_VALUE,
    chat,
    raw,
    refused,
)


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"{", b"[]", b'"x"', b"null", b"1", b"\xff\xfe", b"[" * 100_000, b'{"model": "m"}', chat() + b"x"],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (raw(temperature="NaN"), "invalid_input"),
        (raw(temperature="Infinity"), "invalid_input"),
        (raw(temperature="-Infinity"), "invalid_input"),
        (raw(temperature="1e999"), INVALID_VALUE),
        (raw(max_tokens="9" * 400), INTEGER_ABOVE),
        (raw(seed="1" * 5000), INVALID_VALUE),
        (raw(seed="1e400"), INVALID_VALUE),
        (raw(user=r'"\ud800"'), INVALID_VALUE),
        (raw(user=r'"\udc00"'), INVALID_VALUE),
        (raw(user=r'"\ud800", "n": }'), "invalid_input"),
        (raw(user='"\x01"'), "invalid_input"),
        (raw(user="'x'"), "invalid_input"),
        (chat(user="x").replace(b'"x"', b'"\xff"'), "invalid_input"),
        (chat(user="x").replace(b'"x"', b'"\xed\xa0\x80"'), "invalid_input"),
        (b"\xef\xbb\xbf" + chat(), "invalid_input"),
        (chat().decode().encode("utf-16"), "invalid_input"),
        (raw(logit_bias='{"1": ' * 5000 + "1" + "}" * 5000), INVALID_TYPE),
        (raw(tools='[{"a": ' + "[" * 50_000 + "]" * 50_000 + "}]"), "invalid_input"),
    ],
    ids=lambda part: repr(part[-30:]) if isinstance(part, bytes) else part,
)
def test_broken_json_is_refused(body: bytes, code: str) -> None:
    assert refused(body).code == code


def test_of_a_key_that_comes_twice_the_last_one_counts() -> None:
    assert read_chat(raw(max_tokens='5, "max_tokens": 7')).max_tokens == 7
    assert refused(raw(max_tokens='5, "max_tokens": 0')).param == "max_tokens"


@pytest.mark.parametrize(
    "body",
    [
        raw(max_tokens='"x", "max_tokens": 7'),
        raw(max_tokens='0, "max_tokens": 7'),
        raw(max_tokens="7", messages='[{"role": "user", "content": 5, "content": "hello"}]'),
        raw(max_tokens="7", messages='[{"role": "tool", "role": "user", "content": "hello"}]'),
        raw(max_tokens="7", messages='{}, "messages": [{"role": "user", "content": "hello"}]'),
    ],
)
def test_what_a_later_value_replaces_need_not_be_right(body: bytes) -> None:
    assert read_chat(body) == read_chat(chat(max_tokens=7))


def test_of_several_wrong_values_the_last_one_is_blamed() -> None:
    assert refused(raw(max_tokens='"x", "max_tokens": 0')).code == INTEGER_BELOW
    assert refused(raw(max_tokens='7, "max_tokens": "x"')).code == INVALID_TYPE
    assert refused(raw(max_tokens='"x", "temperature": 1e999')).param == "max_tokens"  # which no JSON reader takes
    assert refused(raw(max_tokens='"x"', tools='[{"a": 1e999}]')).param == "max_tokens"


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from(["user", "text", "auto"]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "type"]), part),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(ChatBody.__struct_fields__)), VALUES, min_size=1))
def test_a_second_look_takes_nothing_that_the_first_would_not(changes: dict[str, Any]) -> None:
    """Where no key comes twice."""
    body = chat(**changes)
    try:
        msgspec.json.decode(body, type=ChatBody)
    except msgspec.ValidationError:
        with pytest.raises(msgspec.ValidationError):
            by_last(ChatBody, body)


def test_numbers_may_be_written_in_other_ways() -> None:
    assert read_chat(raw(temperature="1", top_p="1e-1", seed="-0")).options.temperature == 1.0
