"""What crosses between the rooms: plain dataclasses and enums, no I/O."""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from chatsite.ids import parse_id

GRACE_SECONDS = 2.0  # by which a time that is shown may be wrong
FALLBACK_HEADER = "X-Fallback-From"  # of an answer: the model that was asked for, where another one answers


_ANSWER_ID = re.compile("(?:chatcmpl|cmpl)-([0-9a-f]{32})")


def answer_id(chat: bool, first: UUID) -> str:
    """What an OpenAI-compatible answer is called: `chatcmpl-` or `cmpl-` and the id of its first choice's request."""
    return f"{'chatcmpl' if chat else 'cmpl'}-{first.hex}"


def request_named(text: str) -> UUID | None:
    """The request that is called `req_...`, or that an OpenAI-compatible answer is called after; None for all else."""
    if (found := _ANSWER_ID.fullmatch(text)) is not None:
        return UUID(found[1])
    return parse_id("req", text)


class Role(StrEnum):
    """Who speaks in a turn."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    QUOTA = "quota"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Turn:
    """What one speaker said. No content may pass for another's: see inference.prompts."""

    role: Role
    content: str


@dataclass(frozen=True)
class PromptSource:
    """What a prompt is made of: the turns, then tokens of the reply that were there before (continue)."""

    turns: list[Turn]
    prefix_ids: list[int]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `max_tokens` counts what this request may add. None leaves it to the model's default."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()  # matched by the runner; the engine never sees them
    logprobs: int | None = None  # of the chosen token and of so many likelier ones
    extra: dict[str, Any] = field(default_factory=dict)  # passed to the engine as it is

    @property
    def guided(self) -> bool:
        """Whether a grammar holds the engine: it begins anew with each call, so a reply cannot be taken up midway."""
        return "response_format" in self.extra


@dataclass(frozen=True)
class Usage:
    """Tokens: `cached` is part of `input`."""

    input: int
    cached: int
    output: int

    def as_dict(self) -> dict[str, int]:
        return {"input": self.input, "cached": self.cached, "output": self.output}


@dataclass(frozen=True)
class Prepared:
    """A prompt that fits its model, ready to be accepted."""

    model: str
    token_ids: list[int]
    sampling: Sampling
    cache_salt: str


@dataclass(frozen=True)
class Decided:
    """Of a request that is let in: the `model` that runs it, as asked or the smaller one; what is kept of why."""

    model: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Cursor:
    """Where a reader stands: `<request>.<tokens>.<characters>`, both counted from the start of the owner's text."""

    request_id: UUID
    tokens: int
    characters: int

    def __str__(self) -> str:
        return f"{self.request_id}.{self.tokens}.{self.characters}"

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """None when `text` is no cursor."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 12 for part in parts[1:]):
            return None
        try:
            return cls(UUID(parts[0]), int(parts[1]), int(parts[2]))
        except ValueError:
            return None


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a request that was refused when it was to start: whether and when to come again, as `chatsite.errors` has it.

    `of`: what there were too many of, requests or tokens.
    """

    retry_after: float | None = None
    should_retry: bool | None = None
    of: str | None = None


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a request ended: what a caller who kept no row is told. The log alone has the `refusal`, not the row."""

    status: str  # a terminal RequestStatus
    finish_reason: str
    error_code: str
    error_message: str
    input: int
    cached: int
    output: int
    refusal: Refusal | None = None


@dataclass(frozen=True)
class StartedEvent:
    """The first attempt was claimed by a runner."""

    entry: str  # the log's own id, where the next read goes on


@dataclass(frozen=True)
class TokensEvent:
    """Text that was added: characters `[from_char, from_char + len(text))` of the owner's text."""

    entry: str
    tokens: int  # emitted once this entry is read
    from_char: int
    text: str
    logprobs: bytes | None = None  # JSON, one entry for each token
    ids: bytes = b""  # of the tokens, packed: events.unpack_ids


@dataclass(frozen=True)
class RetryingEvent:
    """The replica or runner was lost; another takes over."""

    entry: str
    attempt: int


@dataclass(frozen=True)
class EndEvent:
    """The request is terminal, and PostgreSQL has it. `result`: how it ended, where the log tells."""

    entry: str
    result: "Result | None" = None


LogEvent = StartedEvent | TokensEvent | RetryingEvent | EndEvent


@dataclass(frozen=True)
class QueuePlace:
    """Where a waiting request stands. `eta` in seconds, None while nothing is predicted; `preemptions` so far.

    `smaller`: the title of a model that would answer now, "" none. `late`: a time was shown, and has passed; `until`:
    when that which is shown will have.
    """

    position: int  # 1 is next
    eta: float | None
    loading: bool = False
    preemptions: int = 0
    smaller: str = ""
    late: bool = False
    until: float | None = None

    def after(self, before: "QueuePlace | None", now: float) -> "QueuePlace":
        """What is shown next: never a higher position or a longer wait than before, but after a preemption.

        So one that was too short would stay for ever: once it has passed, none is shown. `now`: seconds of any clock.
        """
        until = None if self.eta is None else now + self.eta
        if before is None or self.preemptions > before.preemptions:
            return replace(self, until=until)
        position = min(before.position, self.position)
        if self.loading:
            return replace(self, position=position, eta=None)
        eta = self.eta
        if before.eta is not None and (eta is None or eta >= before.eta):
            eta, until = before.eta, before.until
        late = before.late or self.late or (until is not None and now > until + GRACE_SECONDS)
        return replace(self, position=position, eta=None if late else eta, late=late, until=None if late else until)


@dataclass(frozen=True)
class Outcome:
    """How a request ended, for its owner and the ledger. `text` and `token_ids` cover what this request added."""

    request_id: UUID
    owner_id: UUID
    status: str  # a terminal RequestStatus
    finish_reason: str  # empty when it failed
    error_code: str  # empty unless it failed
    error_message: str
    text: str
    token_ids: list[int]
    base_tokens: int  # tokens of the owner's text that were there before this request
    usage: Usage
