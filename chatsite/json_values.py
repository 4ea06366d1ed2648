"""What JSON can say and no store of ours can keep: NUL, half a surrogate pair, integers outside 64 bits. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

SHOWN = 200  # characters of a path
MOST = 100_000  # values that are looked at, in a tenth of a second; where there are more it is refused
_INTEGERS = range(-(2**63), 2**63)
_SUSPECT = re.compile(rb"\\u0000|\d{19}")  # without either there is nothing to be found
_HALF = re.compile("[\ud800-\udfff]")
_HALF_WRITTEN = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Fault:
    """A value that cannot be kept. `path` as in `messages[0].content`, cut where long; `reason` ends a sentence."""

    path: str
    reason: str


def find_fault(data: bytes, decoded: object) -> Fault | None:
    """The first one in `decoded`, which was read from `data`: most bodies are cleared by a look at their bytes."""
    return _first(decoded) if _SUSPECT.search(data) else None


def find_half_pair(data: bytes) -> Fault | None:
    """Where JSON that msgspec could not decode has half a surrogate pair; None when something else is wrong with it."""
    if not _HALF_WRITTEN.search(data):
        return None
    try:
        return _first(json.loads(data))
    except (ValueError, RecursionError):
        return None


def _first(decoded: object) -> Fault | None:
    waiting, left = [("", decoded)], MOST
    while waiting:
        path, value = waiting.pop()
        found = []
        for name, each in _members(value):
            left -= 1
            if left < 0:
                return Fault(path, f"more than {MOST:,} values are too many")
            if isinstance(name, str) and (reason := _wrong(name)):
                return Fault(path, f"a name in it {reason}")
            if reason := _wrong(each):
                return Fault(_joined(path, name), f"it {reason}")
            if isinstance(each, (dict, list, msgspec.Struct)):
                found.append((_joined(path, name), each))
        waiting += reversed(found)
    return None


def _members(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        whole = value and set(map(type, value)) == {int} and min(value) in _INTEGERS and max(value) in _INTEGERS
        return () if whole else enumerate(value)  # a million token ids are not looked at one by one
    if isinstance(value, msgspec.Struct):
        values = [getattr(value, name) for name in value.__struct_fields__]
        return zip(value.__struct_encode_fields__, values, strict=True)
    return ()


def _wrong(value: object) -> str:
    if isinstance(value, str):
        if "\0" in value:
            return "contains a NUL character"
        return "contains half a surrogate pair" if not value.isascii() and _HALF.search(value) else ""
    return "is an integer outside 64 bits" if isinstance(value, int) and value not in _INTEGERS else ""


def _joined(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"[:SHOWN]
    return (f"{path}.{name}" if path else name)[:SHOWN]
