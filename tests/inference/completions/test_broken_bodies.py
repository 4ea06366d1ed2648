"""Bodies that are no JSON, or nearly: refused, or read as the reference reads them."""

import pytest

from inference.completions.calls import read_chat
from tests.inference.completions.test_bodies import INTEGER_ABOVE, INVALID_TYPE, INVALID_VALUE, chat, raw, refused


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


def test_numbers_may_be_written_in_other_ways() -> None:
    assert read_chat(raw(temperature="1", top_p="1e-1", seed="-0")).options.temperature == 1.0
