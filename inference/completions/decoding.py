"""JSON to a body's structure, with errors that name the parameter as the reference API does. Pure."""

import re
from functools import cache
from typing import Any, TypeVar

import msgspec

from chatsite.errors import InvalidInput
from chatsite.json_values import Fault, find_fault, find_half_pair
from inference.completions.errors import (
    InvalidType,
    InvalidValue,
    MissingParameter,
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
        *("flex", "scale", "priority", "low", "high"),
        *("audio", "image_url", "input_audio", "file", "refusal", "video_url"),
    )
)
_NAMES_OF_TOOLS = ("tool_choice", "function_call")  # there also objects, which name a function
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value '(?P<value>.*)'", re.DOTALL)
_NOTHING_ALLOWED = re.compile(r"Expected `null`|Expected `(?:array|str)` of length <= 0")


def decode(kind: type[T], data: bytes) -> T:
    """Raises InvalidInput kinds. Of a key that comes twice the last one counts, as with the reference."""
    try:
        decoded: T = _decoder(kind).decode(data)  # type: ignore[arg-type] # of the cache
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if (fault := find_half_pair(data)) is not None:
            raise _faulty(fault) from error
        raise InvalidInput(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidInput("The body is nested too deeply.") from error
    if (fault := find_fault(data, decoded)) is not None:
        raise _faulty(fault)
    return decoded


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
    wrong_type = ", got `" in message or re.fullmatch(r"Expected `\w+`", message)
    kind = InvalidType if wrong_type else InvalidValue
    shown = f"{message[:1].lower()}{message[1:]}"
    named = f"'{path}'" if path else "the body"
    return kind(f"Invalid {'type' if wrong_type else 'value'} for {named}: {shown}.", param=path or None)
