"""What goes to vLLM and what comes, as far as it concerns us (seen on 0.32). No I/O.

A stream of /v1/completions with `return_token_ids` and `continuous_usage_stats`, events parted by empty lines:

    data: {"id":"cmpl-8a..","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,
    "text":" a","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2,3],"token_ids":[253]}],
    "usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1}}
    ...
    data: {..,"choices":[],"usage":{"prompt_tokens":3,"total_tokens":9,"completion_tokens":6,
    "prompt_tokens_details":{"cached_tokens":0}}}
    data: [DONE]

Only the first event repeats the prompt; only the last before [DONE] tells the cached tokens. An error after the
headers is an event `{"error": {"message", "type", "param", "code": <HTTP status>}}`, then [DONE].
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from inference.vllm_errors import EngineError, EngineGarbage, EngineUnavailable, answered

MAX_EVENT_BYTES = 64 * 1024 * 1024  # the first event repeats the prompt's ids
_GIVEN_UP = frozenset({"abort", "error"})  # finish reasons of an engine that could not go on

_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class UsageInfo(msgspec.Struct, gc=False):
    prompt_tokens: _Count
    completion_tokens: _Count = 0
    prompt_tokens_details: PromptDetails | None = None


class ChoiceLogprobs(msgspec.Struct, gc=False):
    """Of a completion: a list per kind, an entry per token."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float | None] | None] | None = None


class TokenLogprob(msgspec.Struct, gc=False):
    """How likely a token was, and which were likelier or next (`top`, by text)."""

    token: str
    logprob: float | None
    top: dict[str, float | None] = {}


class Choice(msgspec.Struct, gc=False):
    text: str = ""
    token_ids: list[_Id] | None = None
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None


class EngineFault(msgspec.Struct, gc=False):
    message: str = ""
    code: int | str | None = None

    def as_error(self, status: int) -> EngineError:
        """`status` for where the code tells none."""
        return answered(self.code if isinstance(self.code, int) else status, self.message)


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[Choice] = []
    usage: UsageInfo | None = None
    error: EngineFault | None = None


class ErrorBody(msgspec.Struct, gc=False):
    """The body of an answer that is not 200."""

    error: EngineFault


class Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """The answer of /v1/models."""

    data: list[Model]


class Tokens(msgspec.Struct):
    """The answer of /tokenize."""

    tokens: list[_Id]


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One run of a prompt. None leaves a parameter to the engine; `extra` is merged into the body as it is."""

    model: str
    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    min_tokens: int = 0
    cache_salt: str = ""
    logprobs: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """The JSON of /v1/completions."""
        optional = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "min_tokens": self.min_tokens or None,
            "cache_salt": self.cache_salt or None,
            "logprobs": self.logprobs,
        }
        return msgspec.json.encode(
            {
                **self.extra,
                **{name: value for name, value in optional.items() if value is not None},
                "model": self.model,
                "prompt": list(self.prompt_ids),
                "max_tokens": self.max_tokens,
                "stream": True,
                "return_token_ids": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        )


@dataclass(slots=True)
class Delta:
    """What one read from the network brought, several events in one.

    `token_ids` hold the end-of-reply token, too, where there was one. The counts are totals so far, None while unknown
    (`cached_tokens` until the last). The last Delta, and only it, has a `finish_reason`: "stop" or "length".
    """

    token_ids: list[int]
    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)


_decode_chunk = msgspec.json.Decoder(Chunk).decode


class EventReader:
    """Bytes of a stream to Deltas. Checks the engine's counts, which are what is charged, against what came."""

    def __init__(self, prompt_tokens: int, max_tokens: int) -> None:
        self.received = 0  # token ids so far
        self.complete = False  # the last Delta was given
        self.failure: EngineError | None = None  # to be raised once the Delta before it is out
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._rest = b""  # the beginning of an event
        self._usage: UsageInfo | None = None
        self._finish_reason: str | None = None  # kept for the last Delta, which has the final counts

    def feed(self, data: bytes) -> Delta | None:
        """What one read brings, None when that is nothing yet. `b""` is the end of the response."""
        events = (self._rest + data).split(b"\n\n")
        self._rest = events.pop()
        delta = Delta([], "")
        try:
            for event in events:
                if self._apply(event, delta):
                    self.complete = True  # nothing follows [DONE]
                    break
            if not data and not self.complete:
                self._end_of_response()
            if len(self._rest) > MAX_EVENT_BYTES:
                raise EngineGarbage("The engine sent an event without end.")
        except EngineError as error:
            self.failure = error
        if self.complete:
            delta.finish_reason = self._finish_reason
        elif not delta.token_ids and not delta.text:
            return None
        if self._usage is not None:
            details = self._usage.prompt_tokens_details
            delta.prompt_tokens = self._usage.prompt_tokens
            delta.completion_tokens = self._usage.completion_tokens
            delta.cached_tokens = details.cached_tokens if details is not None else None
        return delta

    def _apply(self, event: bytes, delta: Delta) -> bool:
        """Add one event to `delta`. True at the end of the stream. Raises EngineError."""
        if event.startswith(b":"):  # a comment, to keep the connection alive
            return False
        if event == b"data: [DONE]":
            if self._finish_reason is None:
                raise EngineUnavailable("The engine ended the reply without a reason.")
            return True
        try:
            chunk = _decode_chunk(event[6:]) if event.startswith(b"data: ") else None
        except msgspec.DecodeError as error:
            raise EngineGarbage(f"The engine sent an event that cannot be read: {error}") from error
        if chunk is None:
            raise EngineGarbage("The engine sent what is no event.")
        if chunk.error is not None:
            raise chunk.error.as_error(500)
        for choice in chunk.choices:
            self._add(choice, delta)
        if chunk.usage is not None:
            self._check(chunk.usage)
        return False

    def _add(self, choice: Choice, delta: Delta) -> None:
        if choice.token_ids:
            self.received += len(choice.token_ids)
            delta.token_ids += choice.token_ids
        if choice.text:
            delta.text += choice.text.replace("\0", "")
        if choice.logprobs is not None:
            delta.logprobs += _token_logprobs(choice.logprobs)
        if choice.finish_reason in _GIVEN_UP:
            raise EngineUnavailable("The engine gave the reply up.")
        self._finish_reason = choice.finish_reason or self._finish_reason

    def _check(self, usage: UsageInfo) -> None:
        """The engine's counts against what came. They are what is charged."""
        if usage.completion_tokens != self.received or self.received > self._max_tokens:
            counted = f"{usage.completion_tokens} of at most {self._max_tokens} tokens"
            raise EngineGarbage(f"The engine counts {counted}, and sent {self.received}.")
        if usage.prompt_tokens != self._prompt_tokens:
            counted = f"a prompt of {usage.prompt_tokens} tokens"
            raise EngineGarbage(f"The engine counts {counted}, and was sent {self._prompt_tokens}.")
        self._usage = usage

    def _end_of_response(self) -> None:
        """The response ended without [DONE]. With a finish reason, all there is to the reply is there."""
        if self._rest:
            raise EngineGarbage("The engine ended in the middle of an event.")
        if self._finish_reason is None:
            raise EngineUnavailable("The engine ended the reply without a reason.")
        self.complete = True


def _token_logprobs(found: ChoiceLogprobs) -> list[TokenLogprob]:
    tops: Sequence[dict[str, float | None] | None] = found.top_logprobs or [None] * len(found.tokens)
    return [
        TokenLogprob(token, logprob, top or {})
        for token, logprob, top in zip(found.tokens, found.token_logprobs, tops, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that an engine serves, and how many tokens a prompt and its reply may have together."""

    name: str
    context_length: int | None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine's load, summed over its data-parallel ranks."""

    running: int
    waiting: int
    kv_usage: float  # 0..1, the fullest rank
    block_size: int  # tokens; 0 when not told
    kv_blocks: int = 0  # of all ranks; 0 when not told
    preemptions: int = 0  # since it started
    generated: int = 0  # tokens since it started
    prefilled: int = 0  # tokens of prompts since it started, without those that were cached


_SAMPLE = re.compile(
    rb"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|num_preemptions_total"
    rb"|generation_tokens_total|prompt_tokens_total|prompt_tokens_cached_total)\{[^\n]*\} (\S+)$",
    re.MULTILINE,
)
_CACHE_CONFIG = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\} ", re.MULTILINE)
_LABEL = re.compile(rb'\b(block_size|num_gpu_blocks)="(\d+)"')
_MOST_COUNTED = 2.0**53  # a larger float is no exact count
_MOST_KV_TOKENS = 2**31  # far more than any machine holds
_MOST = {  # of the others, what can be counted
    b"kv_cache_usage_perc": 1.0,
    b"num_requests_running": 2.0**20,
    b"num_requests_waiting": 2.0**20,
    b"block_size": 2.0**20,
}


def parse_stats(metrics: bytes) -> EngineStats | None:
    """The load in the text of /metrics; None when it is not there. Raises EngineGarbage for what cannot be right."""
    samples: dict[bytes, list[float]] = {}
    for name, value in _SAMPLE.findall(metrics):
        samples.setdefault(name, []).append(_figure(name, value))
    if b"num_requests_running" not in samples:
        return None
    configs = [
        {name: int(_figure(name, value)) for name, value in _LABEL.findall(labels)}
        for labels in _CACHE_CONFIG.findall(metrics)
    ]
    stats = EngineStats(
        running=int(sum(samples[b"num_requests_running"])),
        waiting=int(sum(samples.get(b"num_requests_waiting", ()))),
        kv_usage=max(samples.get(b"kv_cache_usage_perc", ()), default=0.0),
        block_size=max((config.get(b"block_size", 0) for config in configs), default=0),
        kv_blocks=sum(config.get(b"num_gpu_blocks", 0) for config in configs),
        preemptions=int(sum(samples.get(b"num_preemptions_total", ()))),
        generated=int(sum(samples.get(b"generation_tokens_total", ()))),
        prefilled=int(
            sum(samples.get(b"prompt_tokens_total", ())) - sum(samples.get(b"prompt_tokens_cached_total", ()))
        ),
    )
    if stats.kv_blocks * stats.block_size > _MOST_KV_TOKENS:
        raise EngineGarbage(f"The engine says that it holds {stats.kv_blocks} blocks of {stats.block_size} tokens.")
    return stats


def _figure(name: bytes, value: bytes) -> float:
    """A number that calculations may rely on: not a word, not infinite, not below 0, not absurdly large."""
    try:
        figure = float(value)
    except ValueError:
        figure = math.nan
    if not 0 <= figure <= _MOST.get(name, _MOST_COUNTED):
        said = value[:40].decode("ascii", "replace")
        raise EngineGarbage(f"The engine's metrics say that {name.decode()} is {said}.")
    return figure
