"""How the OpenAPI document describes the native API's raw routes."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter

from chatsite.openapi import FALLBACK_FROM, IDEMPOTENCY_KEY, Events, Operation, json_event, schema_of
from chatsite.raw import Route
from conversations.serializers import MessageSerializer
from conversations.streams import (
    CONTINUE,
    REGENERATE,
    SEND,
    STOP,
    STREAM,
    ContinueBody,
    RegenerateBody,
    SendBody,
)

EVENTS = """Server-sent events. Each `data:` is a JSON object; all but `queued` have an `id:`, the resume cursor.

- `{"type":"queued","messageId","position","eta"}`
- `{"type":"started","messageId","userMessageId"}`
- `{"type":"token","text"}`
- `{"type":"retrying","attempt"}`: another replica takes over, the text goes on
- `{"type":"done","messageId","status","finish_reason","usage"}`, the last one, or
- `{"type":"error","messageId","code","message","retryable"}`, the last one
"""
_ID = {"type": "string", "pattern": "^msg_[0-9a-f-]{36}$"}
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_NULL = {"type": "null"}


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    properties = {"type": {"type": "string", "enum": [kind]}, **fields}
    return {"type": "object", "required": list(properties), "properties": properties, "additionalProperties": False}


_USAGE = {
    "type": "object",
    "required": ["input", "cached", "output"],
    "properties": {"input": _COUNT, "cached": _COUNT, "output": _COUNT},
}
STREAMED = Events(
    EVENTS,
    json_event(
        {
            "anyOf": [
                _event("queued", messageId=_ID, position=_COUNT, eta={"type": ["number", "null"]}),
                _event("started", messageId=_ID, userMessageId={"anyOf": [_ID, _NULL]}),
                _event("token", text=_TEXT),
                _event("retrying", attempt=_COUNT),
                _event(
                    "done",
                    messageId=_ID,
                    status={"type": "string", "enum": ["complete", "stopped"]},
                    finish_reason={"type": "string", "enum": ["stop", "length", "quota", "cancelled"]},
                    usage=_USAGE,
                ),
                _event("error", messageId=_ID, code=_TEXT, message=_TEXT, retryable={"type": "boolean"}),
            ]
        }
    ),
)
LAST_EVENT_ID = OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER, description="The cursor.")
AFTER = OpenApiParameter("after", str, description="The cursor, where a header cannot be sent.")

DESCRIBED: list[tuple[Route, Operation]] = [
    (
        SEND,
        Operation(
            "send_message",
            {200: MessageSerializer, 202: MessageSerializer},
            schema_of(SendBody),
            STREAMED,
            [IDEMPOTENCY_KEY, FALLBACK_FROM],
        ),
    ),
    (
        STREAM,
        Operation(
            "stream_message",
            {204: "Nothing comes after this."},
            events=STREAMED,
            parameters=[LAST_EVENT_ID, AFTER],
        ),
    ),
    (
        STOP,
        Operation("stop_message", {200: MessageSerializer, 202: MessageSerializer}, parameters=[IDEMPOTENCY_KEY]),
    ),
    (
        CONTINUE,
        Operation(
            "continue_message",
            {200: MessageSerializer, 202: MessageSerializer},
            schema_of(ContinueBody),
            STREAMED,
            [IDEMPOTENCY_KEY],
        ),
    ),
    (
        REGENERATE,
        Operation(
            "regenerate_message",
            {200: MessageSerializer, 202: MessageSerializer},
            schema_of(RegenerateBody),
            STREAMED,
            [IDEMPOTENCY_KEY, FALLBACK_FROM],
        ),
    ),
]
