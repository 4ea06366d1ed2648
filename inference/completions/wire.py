"""The JSON of OpenAI-compatible answers. Pure. What repeats in every chunk is encoded once for each call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from inference.completions.alignment import PlacedToken
from inference.protocol import FinishReason, Result
from inference.vllm_wire import TokenLogprob

DONE = b"data: [DONE]\n\n"
WAITING = b": waiting\n\n"  # a comment: clients pass over it
_encode = msgspec.json.Encoder().encode
# The API knows stop and length; where a quota cut an answer short, length says that there is more. A cancelled answer
# is none (`reader.failure`).
_FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.QUOTA: "length",
}


def finish_reason(result: Result) -> str:
    return _FINISH_REASONS[FinishReason(result.finish_reason)]


def usage_of(prompt_tokens: int, results: Sequence[Result]) -> dict[str, Any]:
    """Over all choices: each prompt once."""
    output = sum(result.output for result in results)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output,
        "total_tokens": prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": sum(result.cached for result in results)},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What an answer begins with, the same in each chunk of one. `created`: Unix seconds."""

    chat: bool
    id: str
    created: int
    model: str
    service_tier: str | None = None  # told where there is one

    def fields(self, *, streamed: bool) -> dict[str, Any]:
        """Of a chunk (`streamed`) or of an answer in one piece, which has its `system_fingerprint` at the end."""
        kind = "text_completion" if not self.chat else "chat.completion.chunk" if streamed else "chat.completion"
        fields: dict[str, Any] = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        if streamed:
            fields["system_fingerprint"] = None
        if self.service_tier is not None:
            fields["service_tier"] = self.service_tier
        return fields


class Chunks:
    """The events of one streamed call."""

    def __init__(self, head: AnswerHead, *, usage: bool, top: int = 0) -> None:
        """`top`: as in `logprobs_of`."""
        self._chat, self._top = head.chat, top
        self._head = b"data: " + _encode(head.fields(streamed=True))[:-1] + b',"choices":['
        # Where usage was asked for, every chunk has the field.
        self._tail = b'],"usage":null}\n\n' if usage else b"]}\n\n"
        self._fields: tuple[bytes, bytes] = (
            (b',"delta":{"content":', b'},"logprobs":') if head.chat else (b',"text":', b',"logprobs":')
        )

    def role(self, choice: int) -> bytes:
        """The first chunk of a chat's choice."""
        delta = b',"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._head + b'{"index":%d' % choice + delta + self._tail

    def text(self, choice: int, text: str, logprobs: Sequence[PlacedToken] | None) -> bytes:
        before, after = self._fields
        shown = b"null" if logprobs is None else _encode(logprobs_of(logprobs, chat=self._chat, top=self._top))
        body = b'{"index":%d' % choice + before + _encode(text) + after + shown + b',"finish_reason":null}'
        return self._head + body + self._tail

    def end(self, choice: int, result: Result) -> bytes:
        field = b',"delta":{}' if self._chat else b',"text":""'
        reason = finish_reason(result).encode()
        body = b'{"index":%d' % choice + field + b',"logprobs":null,"finish_reason":"' + reason + b'"}'
        return self._head + body + self._tail

    def usage(self, prompt_tokens: int, results: Sequence[Result]) -> bytes:
        """The last chunk, without choices."""
        return self._head + b'],"usage":' + _encode(usage_of(prompt_tokens, results)) + b"}\n\n"


def logprobs_of(found: Sequence[PlacedToken], *, chat: bool, top: int = 0) -> dict[str, Any]:
    """In the form of the route. A chat's tells of the `top` likeliest tokens, the other of the sampled one as well."""
    if chat:
        return {"content": [_chat_logprob(one.logprob, top) for one in found], "refusal": None}
    return {
        "tokens": [one.logprob.token for one in found],
        "token_logprobs": [one.logprob.logprob for one in found],
        "top_logprobs": [one.logprob.top for one in found],
        "text_offset": [one.offset for one in found],
    }


def _chat_logprob(one: TokenLogprob, top: int) -> dict[str, Any]:
    named = [_named(token, logprob) for token, logprob in one.top.items()]
    likeliest = sorted(named, key=lambda each: -each["logprob"])[:top]
    return {**_named(one.token, one.logprob), "top_logprobs": likeliest}


def _named(token: str, logprob: float | None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob if logprob is not None else -9999.0, "bytes": list(token.encode())}


class Whole:
    """An answer in one piece, gathered."""

    def __init__(self, head: AnswerHead, *, prompts: Sequence[str], n: int, top: int = 0) -> None:
        """`prompts`: texts that stand ahead of their answers (echo), else empty ones. `top`: as in `logprobs_of`."""
        self._head, self._top = head, top
        count = len(prompts) * n
        self._texts: list[list[str]] = [[prompts[index // n]] for index in range(count)]
        self._logprobs: list[list[PlacedToken]] = [[] for _ in range(count)]
        self.results: list[Result | None] = [None] * count

    def add(self, choice: int, text: str, logprobs: Sequence[PlacedToken] | None) -> None:
        self._texts[choice].append(text)
        self._logprobs[choice] += logprobs or ()

    def answer(self, prompt_tokens: int, *, logprobs: bool) -> dict[str, Any]:
        """Once every choice has its result."""
        results = [result for result in self.results if result is not None]
        choices = [self._choice(index, result, logprobs) for index, result in enumerate(results)]
        usage = usage_of(prompt_tokens, results)
        return {**self._head.fields(streamed=False), "choices": choices, "usage": usage, "system_fingerprint": None}

    def _choice(self, index: int, result: Result, logprobs: bool) -> dict[str, Any]:
        text = "".join(self._texts[index])
        shown = logprobs_of(self._logprobs[index], chat=self._head.chat, top=self._top) if logprobs else None
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}} if self._head.chat else {"text": text}
        )
        return {"index": index, **content, "logprobs": shown, "finish_reason": finish_reason(result)}
