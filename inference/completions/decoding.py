"""JSON to a body's structure, with errors that name the parameter as the reference API does. Pure."""

import re
from functools import cache
from typing import Any, TypeVar

import msgspec

from chatsite.errors import InvalidInput
from chatsite.json_values import Fault, find_fault, find_half_pair
from inference.completions.errors import (
    ArrayTooLong,
    DecimalAbove,
    DecimalBelow,
    EmptyArray,
    EmptyString,
    IntegerAbove,
    IntegerBelow,
    InvalidType,
    InvalidValue,
    MissingParameter,
    StringTooLong,
    UnknownParameter,
    Unsupported,
    UnsupportedValue,
)

T = TypeVar("T")
SHOWN = 100  # characters of what a caller wrote, in our answer
# The reference API knows them, and this site has nothing to offer for them.
_KNOWN_ELSEWHERE = frozenset(
    (
        *("tool", "function", "required"),
        *("scale", "priority", "low", "high"),
        *("audio", "image_url", "input_audio", "file", "refusal", "video_url"),
    )
)
_NAMES_OF_TOOLS = ("tool_choice", "function_call")  # there also objects, which name a function
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value '(?P<value>.*)'", re.DOTALL)
_BOUND = re.compile(r"Expected `(?P<kind>\w+)` (?:of length )?(?P<sign>[<>]=?) (?P<bound>\S+)")
_BOUNDS: dict[tuple[str, str], tuple[type[InvalidValue], str, str]] = {
    ("int", ">"): (IntegerBelow, "integer below minimum value", "a value {sign} {bound}"),
    ("int", "<"): (IntegerAbove, "integer above maximum value", "a value {sign} {bound}"),
    ("float", ">"): (DecimalBelow, "decimal below minimum value", "a value {sign} {bound}"),
    ("float", "<"): (DecimalAbove, "decimal above maximum value", "a value {sign} {bound}"),
    ("str", ">"): (EmptyString, "empty string", "a string with minimum length {bound}"),
    ("str", "<"): (StringTooLong, "string too long", "a string with maximum length {bound}"),
    ("array", ">"): (EmptyArray, "empty array", "an array with minimum length {bound}"),
    ("array", "<"): (ArrayTooLong, "array too long", "an array with maximum length {bound}"),
    ("object", "<"): (InvalidValue, "too many keys", "an object with {bound} keys at most"),
}
_TYPES = re.compile(r"Expected `(?P<wanted>[^`]+)`(?:, got `(?P<got>[^`]+)`)?\Z")
_TYPE_NAMES = {
    "int": "an integer",
    "float": "a decimal",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    # As Python calls them: of what says which kind an object is
    "list": "an array",
    "dict": "an object",
    "NoneType": "null",
}
_NOTHING_ALLOWED = re.compile(r"Expected `null`|Expected `(?:array|str)` of length <= 0")


def decode(kind: type[T], data: bytes) -> T:
    """Raises InvalidInput kinds. Of a key that comes twice the last one counts, as with the reference."""
    try:
        decoded: T = _decoder(kind).decode(data)  # type: ignore[arg-type] # of the cache
    except msgspec.ValidationError as error:
        decoded = _by_last(kind, data, error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if (fault := find_half_pair(data)) is not None:
            raise _faulty(fault) from error
        raise InvalidInput(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidInput("The body is nested too deeply.") from error
    if (fault := find_fault(data, decoded)) is not None:
        raise _faulty(fault)
    return decoded


def _by_last(kind: type[T], data: bytes, first: msgspec.ValidationError) -> T:
    """What is wrong may be the value of a key that comes again. Only here, as to look twice takes twice as long."""
    try:
        return by_last(kind, data)
    except msgspec.ValidationError as error:
        # Without a type nothing has a name yet: a number that no reader takes is told as it was found first.
        raise _explained(str(first if "`$[" in str(error) else error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _explained(str(first)) from first


def by_last(kind: type[T], data: bytes) -> T:
    """By the last value of each key alone. Raises as msgspec does."""
    return msgspec.convert(msgspec.json.decode(data), kind)


def _faulty(fault: Fault) -> InvalidInput:
    return InvalidValue(f"Invalid value for '{fault.path}': {fault.reason}.", param=fault.path or None)


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _explained(text: str) -> InvalidInput:
    place = _PLACE.search(text)
    message = text[: place.start()] if place else text
    path = place["path"] if place else ""
    if field := _FIELD.match(message):
        name = (f"{path}.{field['name']}" if path else field["name"])[:SHOWN]
        if field["what"] == "contains unknown":
            return UnknownParameter(f"Unknown parameter: '{name}'.", param=name)
        return MissingParameter(f"Missing required parameter: '{name}'.", param=name)
    if _NOTHING_ALLOWED.match(message):
        return Unsupported(f"'{path}' is not supported by this site.", param=path)
    if value := _VALUE.match(message):
        shown = value["value"][:SHOWN]
        if shown in _KNOWN_ELSEWHERE:
            return UnsupportedValue(f"'{shown}' is not supported by this site, as '{path}'.", param=path)
        return InvalidValue(f"Invalid value for '{path}': '{shown}'.", param=path)
    if path in _NAMES_OF_TOOLS and message.endswith("got `object`"):
        return UnsupportedValue(f"Tools are not supported by this site, nor '{path}' that names one.", param=path)
    return _out_of_bounds(message, path) or _other(message, path)


def _out_of_bounds(message: str, path: str) -> InvalidInput | None:
    found = _BOUND.match(message)
    if found is None:
        return None
    kind, words, expected = _BOUNDS[found["kind"], found["sign"][0]]
    wanted = expected.format(sign=found["sign"], bound=found["bound"].removesuffix(".0"))
    return kind(f"Invalid '{path}': {words}. Expected {wanted}.", param=path)


def _other(message: str, path: str) -> InvalidInput:
    named = f"'{path}'" if path else "the body"
    if found := _TYPES.match(message):
        wanted = [_TYPE_NAMES.get(each, each) for each in found["wanted"].split(" | ") if each != "null"]
        got = f", but got {_TYPE_NAMES.get(found['got'], found['got'])} instead" if found["got"] else ""
        return InvalidType(f"Invalid type for {named}: expected {' or '.join(wanted)}{got}.", param=path or None)
    return InvalidValue(f"Invalid value for {named}: {message[:1].lower()}{message[1:]}.", param=path or None)
