"""The bytes that vLLM 0.32 sends, field for field; compared with the real one in tests/fakes/test_engine.py."""

import json
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from tests.fakes.http_server import chunk

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "vllm-0.32.0-fake"


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens, as usage tells them."""

    prompt: int
    completion: int
    cached: int

    def usage(self) -> dict[str, int]:
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "total_tokens": total, "completion_tokens": self.completion}


def dumps(value: object) -> bytes:
    """JSON as pydantic writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def error_body(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def error_event(status: int, message: str) -> bytes:
    """An error inside a stream; this one vLLM writes with spaces."""
    kind = "InternalServerError" if status >= 500 else "BadRequestError"
    return b"data: " + json.dumps(error_body(status, message, kind)).encode() + b"\n\n"


def made_up_logprobs(ids: list[int], top: int) -> dict[str, Any]:
    """Each token is named by its id, and is as likely as that."""
    names = [f"<{token_id}>" for token_id in ids]
    tops = [{f"{name}{place}": -0.1 * place for place in range(top)} for name in names]
    return {
        "text_offset": [0] * len(ids),
        "token_logprobs": [-token_id / 1000 for token_id in ids],
        "tokens": names,
        "top_logprobs": tops if top else [None] * len(ids),
    }


class CompletionEvents:
    """The events of /v1/completions. What does not change from one to the next is encoded once."""

    kind = "text_completion"
    prefix = "cmpl"

    def __init__(self, name: str, created: int, body: dict[str, Any], prompt_ids: list[int]) -> None:
        options = body.get("stream_options") or {}
        self._usage = bool(options.get("include_usage"))
        self._continuous = self._usage and bool(options.get("continuous_usage_stats"))
        self._with_ids = bool(body.get("return_token_ids"))
        self._logprobs: int | None = body.get("logprobs")
        self._prompt_ids = prompt_ids
        self._common = {"id": f"{self.prefix}-{name}", "object": self.kind, "created": created, "model": body["model"]}
        self._head = b"data: " + dumps(self._common)[:-1] + b',"choices":['
        self._first = True

    def first(self, counts: Counts) -> bytes:
        """What comes before the first token."""
        return b""

    def tokens(self, text: str, ids: list[int], finish_reason: str | None, counts: Counts) -> bytes:
        """One chunk of tokens, framed."""
        prompt = dumps(self._prompt_ids) if self._first and self._with_ids else b"null"
        self._first = False
        return self._framed(
            b'{"index":0,"text":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":null,"prompt_token_ids":%b,"token_ids":%b}'
            % (
                encode_basestring(text).encode(),
                b"null" if self._logprobs is None else dumps(made_up_logprobs(ids, self._logprobs)),
                b'"%b"' % finish_reason.encode() if finish_reason else b"null",
                prompt,
                (b"[%b]" % b",".join(b"%d" % token_id for token_id in ids)) if self._with_ids else b"null",
            ),
            counts,
        )

    def end(self, counts: Counts) -> bytes:
        """What comes after the last token, framed: usage and [DONE]."""
        usage = b""
        if self._usage:
            details = {"prompt_tokens_details": {"cached_tokens": counts.cached}}
            last = {**self._common, "choices": [], "usage": {**counts.usage(), **details}}
            usage = chunk(b"data: " + dumps({**last, "system_fingerprint": FINGERPRINT}) + b"\n\n")
        return usage + chunk(DONE)

    def _framed(self, choice: bytes, counts: Counts) -> bytes:
        if not self._continuous:
            return chunk(b"%b%b]}\n\n" % (self._head, choice))
        total = counts.prompt + counts.completion
        usage = (counts.prompt, total, counts.completion)
        numbers = b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % usage
        return chunk(b"%b%b],%b}\n\n" % (self._head, choice, numbers))


class ChatEvents(CompletionEvents):
    """The events of /v1/chat/completions."""

    kind = "chat.completion.chunk"
    prefix = "chatcmpl"

    def first(self, counts: Counts) -> bytes:
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._framed(choice, counts)

    def tokens(self, text: str, ids: list[int], finish_reason: str | None, counts: Counts) -> bytes:
        reason = b'"%b","stop_reason":null' % finish_reason.encode() if finish_reason else b"null"
        return self._framed(
            b'{"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":%b,"token_ids":null}'
            % (encode_basestring(text).encode(), reason),
            counts,
        )


class WholeCompletion(CompletionEvents):
    """The answer of /v1/completions when it is not streamed."""

    def __init__(self, name: str, created: int, body: dict[str, Any], prompt_ids: list[int]) -> None:
        super().__init__(name, created, body, prompt_ids)
        self._text = ""
        self._ids: list[int] = []
        self._finish_reason: str | None = None

    def tokens(self, text: str, ids: list[int], finish_reason: str | None, counts: Counts) -> bytes:
        self._text += text
        self._ids += ids
        self._finish_reason = finish_reason
        return b""

    def body(self, counts: Counts) -> dict[str, Any]:
        """The whole answer."""
        details = {"cached_tokens": counts.cached, "created_cache_tokens": None, "multimodal_tokens": None}
        choice = {
            "index": 0,
            "text": self._text,
            "logprobs": None,
            "finish_reason": self._finish_reason,
            "stop_reason": None,
            "token_ids": self._ids if self._with_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": self._prompt_ids if self._with_ids else None,
            "routed_experts": None,
        }
        usage = {**counts.usage(), "prompt_tokens_details": details, "completion_tokens_details": None}
        return {
            **self._common,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
