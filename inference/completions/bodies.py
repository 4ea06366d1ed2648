"""What the bodies of the OpenAI-compatible routes may say, as structures that also make the OpenAPI document. Pure.

What the reference API accepts and cannot matter here (`user`, `metadata`, ...) is accepted and has no effect; what
would matter and is not there (images, a tool that must be called) has a type that only says nothing, and is refused by
name (`decoding`). Tools that may be called are accepted: no model here calls one, which the choice `auto` allows.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

MAX_STOPS = 4
MAX_STOP = 1000  # characters
MAX_BIASES = 1024
MAX_FORMAT = 64 * 1024  # bytes of JSON
MAX_FORMAT_DEPTH = 64
MAX_TOOLS = 1024
MAX_MESSAGES = 4096
MAX_PROMPTS = 128  # prompts of one call, times n
TOP_LOGPROBS = 20
WITHOUT_NUL = {"pattern": r"^[^\u0000]*$"}  # for the document; `decoding` looks for it, wherever it is

Name = Annotated[str, Meta(min_length=1, extra_json_schema=WITHOUT_NUL)]
Text = Annotated[str, Meta(extra_json_schema=WITHOUT_NUL)]
Prompt = Annotated[str, Meta(min_length=1, extra_json_schema=WITHOUT_NUL)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP, extra_json_schema=WITHOUT_NUL)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
NoList = Annotated[list[Any], Meta(max_length=0)] | None  # for what is not offered: nothing, however it is said


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # there is none
    continuous_usage_stats: bool | None = None  # the last chunk has them, the others do not


class JsonSchema(Struct, omit_defaults=True):
    name: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z", extra_json_schema={"pattern": "^[a-zA-Z0-9_-]{1,64}$"})
    ]
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: Text | None = None


class ResponseFormat(Struct, forbid_unknown_fields=True, tag_field="type"):
    """One of the three kinds below."""


class TextFormat(ResponseFormat, tag="text"):
    pass


class JsonFormat(ResponseFormat, tag="json_object"):
    pass


class SchemaFormat(ResponseFormat, tag="json_schema"):
    json_schema: JsonSchema


class CommonBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What both routes take. Not an engine's parameter until `sampling` makes it one."""

    model: Name
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_PROMPTS)] | None = None
    max_tokens: Count | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    ignore_eos: bool | None = None
    logit_bias: (
        Annotated[
            dict[str, Bias],
            Meta(max_length=MAX_BIASES, extra_json_schema={"propertyNames": {"pattern": "^[0-9]{1,9}$"}}),
        ]
        | None
    ) = None
    response_format: (
        Annotated[
            TextFormat | JsonFormat | SchemaFormat,
            Meta(description=f"At most {MAX_FORMAT:,} bytes of JSON, {MAX_FORMAT_DEPTH} levels deep."),
        ]
        | None
    ) = None
    user: Text | None = None
    service_tier: (
        Annotated[
            Literal["auto", "default", "flex"],
            Meta(
                description="`flex` waits behind all others, at half the price; the answer's `service_tier` says so."
                " `auto` and `default` are the same."
            ),
        ]
        | None
    ) = None
    allow_fallback: (
        Annotated[
            bool,
            Meta(
                description="Whether the smaller model that stands in for this one may answer while this one is busy or"
                " not there. The answer's `model` and the header `X-Fallback-From` tell."
            ),
        ]
        | None
    ) = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def extra(self) -> dict[str, Any]:
        """What the engine knows by the same name."""
        names = (
            "top_k",
            "min_p",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "ignore_eos",
            "logit_bias",
        )
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.response_format is not None and not isinstance(self.response_format, TextFormat):
            found["response_format"] = msgspec.to_builtins(self.response_format)
        return found


class Part(Struct, tag_field="type", tag="text"):
    """Of a message's content. Other kinds than text are not read; marks for caches and the like are passed over."""

    text: Text


Content = Text | Annotated[list[Part], Meta(min_length=1)]


class Message(Struct, forbid_unknown_fields=True, tag_field="role", kw_only=True):
    """A turn: one of the four kinds below."""

    content: Content
    name: Text | None = None


class SystemMessage(Message, tag="system"):
    pass


class DeveloperMessage(Message, tag="developer"):
    pass


class UserMessage(Message, tag="user"):
    pass


class AssistantMessage(Message, tag="assistant", kw_only=True):
    """Clients send an answer's message back as they got it, so its empty fields are taken, too."""

    content: Content | None = None  # type: ignore[assignment] # wider than the others'
    refusal: Text | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: NoList = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None


class ChatBody(CommonBody, kw_only=True):
    messages: Annotated[
        list[SystemMessage | DeveloperMessage | UserMessage | AssistantMessage],
        Meta(min_length=1, max_length=MAX_MESSAGES),
    ]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    # Accepted, without effect here
    metadata: Annotated[dict[str, Text], Meta(extra_json_schema={"propertyNames": WITHOUT_NUL})] | None = None
    store: bool | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["none", "auto"] | None = None
    function_call: Literal["none", "auto"] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    functions: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    verbosity: Literal["medium"] | None = None
    modalities: Annotated[list[Literal["text"]], Meta(min_length=1)] | None = None
    # Named to be refused
    audio: None = None
    prediction: None = None
    reasoning_effort: None = None
    web_search_options: None = None


class CompletionBody(CommonBody, kw_only=True):
    # A text, texts, token ids, or lists of them
    prompt: (
        Prompt | Annotated[list[Prompt | TokenId | Annotated[list[TokenId], Meta(min_length=1)]], Meta(min_length=1)]
    )
    logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_PROMPTS)] | None = None
    suffix: Annotated[str, Meta(max_length=0)] | None = None
