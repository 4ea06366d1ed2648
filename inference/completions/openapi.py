"""How the OpenAPI document describes the OpenAI-compatible routes: from the very structures that read their bodies."""

from typing import Any

import msgspec

from chatsite.openapi import IDEMPOTENCY_KEY, Operation
from chatsite.raw import Route
from inference.completions.bodies import ChatBody, CompletionBody
from inference.completions.routes import CHAT_COMPLETIONS, COMPLETIONS, MODEL, MODELS

EVENTS = """Server-sent events: `data:` with a chunk in JSON each, at the end `data: [DONE]`. An error after the
beginning is a `data:` with `{"error": {...}}`."""


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a body, in one piece."""
    [root], components = msgspec.json.schema_components([kind], ref_template="{name}")
    return dict(_inlined(root, components))


def _inlined(part: Any, components: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(item, components) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(components[part["$ref"]], components)
    return {key: _inlined(value, components) for key, value in part.items()}


_COUNT = {"type": "integer", "minimum": 0}
_USAGE = {
    "type": "object",
    "properties": {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": _COUNT}},
    },
}
_FINISH = {"type": "string", "enum": ["stop", "length"]}


def _answer(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    common = {
        "index": _COUNT,
        "finish_reason": _FINISH,
        "logprobs": {"type": ["object", "null"]},
    }
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"type": "string", "enum": [kind]},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "items": {"type": "object", "properties": {**common, **choice}}},
            "usage": _USAGE,
            "system_fingerprint": {"type": ["string", "null"]},
        },
    }


_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["assistant"]},
        "content": {"type": "string"},
        "refusal": {"type": ["string", "null"]},
    },
}
_MODEL = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string", "enum": ["model"]},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "title": {"type": "string"},
        "context_length": {"type": "integer"},
        "state": {"type": "string", "enum": ["ready", "loading", "down"]},
    },
}
_MODELS = {
    "type": "object",
    "properties": {
        "object": {"type": "string", "enum": ["list"]},
        "data": {"type": "array", "items": _MODEL},
    },
}

DESCRIBED: list[tuple[Route, Operation]] = [
    (
        CHAT_COMPLETIONS,
        Operation(
            "create_chat_completion",
            {200: _answer("chat.completion", {"message": _MESSAGE})},
            schema_of(ChatBody),
            streams=True,
            parameters=[IDEMPOTENCY_KEY],
            events=EVENTS,
        ),
    ),
    (
        COMPLETIONS,
        Operation(
            "create_completion",
            {200: _answer("text_completion", {"text": {"type": "string"}})},
            schema_of(CompletionBody),
            streams=True,
            parameters=[IDEMPOTENCY_KEY],
            events=EVENTS,
        ),
    ),
    (MODELS, Operation("list_models", {200: _MODELS})),
    (MODEL, Operation("retrieve_model", {200: _MODEL})),
]
