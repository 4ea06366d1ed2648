"""How the OpenAPI document describes the OpenAI-compatible routes: from the very structures that read their bodies."""

from typing import Any

from chatsite.openapi import FALLBACK_FROM, IDEMPOTENCY_KEY, Events, Operation, json_event, schema_of
from chatsite.raw import Route
from inference.completions.bodies import ChatBody, CompletionBody
from inference.completions.calls import FLEX
from inference.completions.routes import CHAT_COMPLETIONS, COMPLETIONS, MODEL, MODELS

Schema = dict[str, Any]
EVENTS = """Server-sent events: `data:` with a chunk in JSON each, at the end `data: [DONE]`. An error after the
beginning is a `data:` with `{"error": {...}}`."""
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_NULL = {"type": "null"}


def _object(properties: Schema, *optional: str) -> Schema:
    """All of the properties are there, but for those named."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_USAGE = _object(
    {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
        "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
    }
)
_FINISH = {"type": "string", "enum": ["stop", "length"]}
_NUMBER = {"type": "number"}
_TOKEN: Schema = {"token": _TEXT, "logprob": _NUMBER, "bytes": _list(_COUNT)}
_CHAT_LOGPROBS = _object(
    {"content": _list(_object({**_TOKEN, "top_logprobs": _list(_object(_TOKEN))})), "refusal": _NULL}
)
_TEXT_LOGPROBS = _object(
    {
        "tokens": _list(_TEXT),
        "token_logprobs": _list(_or_null(_NUMBER)),
        "top_logprobs": _list({"type": "object", "additionalProperties": _NUMBER}),
        "text_offset": _list(_COUNT),
    }
)


def _answer(kind: str, choice: Schema, logprobs: Schema, finish: Schema, usage: Schema, *optional: str) -> Schema:
    one = _object({"index": _COUNT, **choice, "logprobs": _or_null(logprobs), "finish_reason": finish})
    return _object(
        {
            "id": _TEXT,
            "object": {"type": "string", "enum": [kind]},
            "created": {"type": "integer"},
            "model": _TEXT,
            "choices": _list(one),
            "usage": usage,
            "system_fingerprint": _or_null(_TEXT),
            "service_tier": {"type": "string", "enum": [FLEX]},
        },
        "service_tier",
        *optional,
    )


def _events(kind: str, choice: Schema, logprobs: Schema) -> Events:
    chunk = _answer(kind, choice, logprobs, _or_null(_FINISH), _or_null(_USAGE), "usage")
    error = _object({"error": _object({"message": _TEXT, "type": _TEXT, "param": _or_null(_TEXT), "code": _TEXT})})
    event = json_event({"anyOf": [chunk, error]})
    data = event["properties"]["data"]
    event["properties"]["data"] = {"type": "string", "if": {"const": "[DONE]"}, "else": data}
    return Events(EVENTS, event)


_ROLE = {"type": "string", "enum": ["assistant"]}
_MESSAGE = _object({"role": _ROLE, "content": _TEXT, "refusal": _or_null(_TEXT)})
_DELTA = _object({"role": _ROLE, "content": _TEXT}, "role", "content")
_MODEL = _object(
    {
        "id": _TEXT,
        "object": {"type": "string", "enum": ["model"]},
        "created": {"type": "integer"},
        "owned_by": _TEXT,
        "title": _TEXT,
        "context_length": _COUNT,
        "state": {"type": "string", "enum": ["ready", "loading", "down"]},
    }
)
_MODELS = _object({"object": {"type": "string", "enum": ["list"]}, "data": _list(_MODEL)})
# 404: there is no such model; 502: the engine refused.
_REFUSALS = (404, 502)

DESCRIBED: list[tuple[Route, Operation]] = [
    (
        CHAT_COMPLETIONS,
        Operation(
            "create_chat_completion",
            {200: _answer("chat.completion", {"message": _MESSAGE}, _CHAT_LOGPROBS, _FINISH, _USAGE)},
            schema_of(ChatBody),
            _events("chat.completion.chunk", {"delta": _DELTA}, _CHAT_LOGPROBS),
            [IDEMPOTENCY_KEY, FALLBACK_FROM],
            _REFUSALS,
        ),
    ),
    (
        COMPLETIONS,
        Operation(
            "create_completion",
            {200: _answer("text_completion", {"text": _TEXT}, _TEXT_LOGPROBS, _FINISH, _USAGE)},
            schema_of(CompletionBody),
            _events("text_completion", {"text": _TEXT}, _TEXT_LOGPROBS),
            [IDEMPOTENCY_KEY, FALLBACK_FROM],
            _REFUSALS,
        ),
    ),
    (MODELS, Operation("list_models", {200: _MODELS})),
    (MODEL, Operation("retrieve_model", {200: _MODEL})),
]
