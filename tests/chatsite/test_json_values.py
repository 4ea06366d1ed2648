"""What JSON can say and no store can keep is found wherever it is."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite import json_values
from chatsite.json_values import SHOWN, find_fault, find_half_pair

NUL, WIDE, HALF = "contains a NUL character", "is an integer outside 64 bits", "contains half a surrogate pair"


class Note(msgspec.Struct, rename={"text": "note"}):
    text: str
    more: Any = None


def found(data: str) -> tuple[str, str] | None:
    fault = find_fault(data.encode(), msgspec.json.decode(data, type=Note))
    return (fault.path, fault.reason) if fault else None


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (r'{"note": "a\u0000b"}', ("note", f"it {NUL}")),
        (r'{"note": "a", "more": [1, {"x": ["\u0000"]}]}', ("more[1].x[0]", f"it {NUL}")),
        (r'{"note": "a", "more": {"b\u0000": 1}}', ("more", f"a name in it {NUL}")),
        (r'{"note": "a", "more": [{"b\u0000": 1}]}', ("more[0]", f"a name in it {NUL}")),
        ('{"note": "a", "more": {"b": 9223372036854775808}}', ("more.b", f"it {WIDE}")),
        ('{"note": "a", "more": [1, 2, -9223372036854775809]}', ("more[2]", f"it {WIDE}")),
        ('{"note": "a", "more": [9223372036854775807, -9223372036854775808]}', None),
        (r'{"note": "12345678901234567890 \\u0000 🌊"}', None),
        ('{"note": "a", "more": [true, null, 1e300, 0.12345678901234567890, {}]}', None),
    ],
)
def test_the_first_fault_is_named(data: str, fault: tuple[str, str] | None) -> None:
    assert found(data) == fault


def test_half_a_surrogate_pair_is_named() -> None:
    fault = find_half_pair(rb'{"a": ["x", {"b": "\ud83d\ude00 \uD800"}]}')
    assert fault is not None and (fault.path, fault.reason) == ("a[1].b", f"it {HALF}")
    for data in (rb'{"a": "\ud83d\ude00"}', rb'{"a": "\ud800"', rb'{"a": }', b"[" * 100_000 + rb'"\ud800"'):
        assert find_half_pair(data) is None


@pytest.mark.parametrize("value", ["[]", "{}", '""', "1.5"])
def test_not_more_than_so_many_values_are_looked_at(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A body of two megabytes may have a million, and whoever looks at them serves nobody meanwhile."""
    monkeypatch.setattr(json_values, "MOST", 1000)

    def body(count: int, more: str) -> str:
        return f'{{"note": "a", "more": {{"x": [{",".join([value] * count)}], "y": {more}}}}}'

    assert found(body(990, "9223372036854775807")) is None
    assert found(body(1000, "9223372036854775807")) == ("more.x", "more than 1,000 values are too many")
    assert found(body(1000, "1")) is None


def test_a_long_path_is_cut() -> None:
    data = '{"note": "", "more": {"%s": {"x": "\\u0000"}}}' % ("k" * 10_000)
    found_path = found(data)
    assert found_path is not None and len(found_path[0]) == SHOWN


@given(
    st.recursive(
        st.integers() | st.text(alphabet="a\0é") | st.floats(allow_nan=False, allow_infinity=False),
        lambda part: st.lists(part) | st.dictionaries(st.text(alphabet="a\0é"), part),
        max_leaves=10,
    )
)
def test_what_has_no_fault_can_be_packed_and_kept(value: Any) -> None:
    data = json.dumps({"note": "", "more": value})
    if found(data) is None:
        msgspec.msgpack.encode(value)
        assert r"\u0000" not in data
    else:
        assert r"\u0000" in data or any(len(part) > 18 for part in data.replace("-", " ").split())
