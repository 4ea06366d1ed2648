"""What a raw route answers with, and how it is written as JSON and as events."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer in one piece. `payload` is anything that msgspec encodes; a Decimal becomes text."""

    status: int
    payload: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmptyAnswer:
    """An answer without a body."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """Server-sent events: `chunks` are whole events (`sse_event`). It is closed at once when the caller goes away."""

    chunks: AsyncIterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = JsonAnswer | EmptyAnswer | StreamAnswer


def sse_event(payload: Any, event_id: str | None = None) -> bytes:
    """One server-sent event: `payload` as JSON in its `data:` line, and the resume cursor as its `id:`."""
    data = encode_json(payload)
    if event_id is None:
        return b"data: " + data + b"\n\n"
    return b"id: " + event_id.encode() + b"\ndata: " + data + b"\n\n"


def _encode_unknown(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_encode_unknown, decimal_format="string")


def encode_json(payload: Any) -> bytes:
    """Anything that msgspec encodes; a Decimal becomes text."""
    return _encoder.encode(payload)
