"""The bodies of the OpenAI-compatible routes, checked, as calls of ours. Pure.

What the reference API accepts and cannot matter here (`user`, `metadata`, ...) is accepted and has no effect; what
would matter and is not there (tools, images) is refused by name, and so is what nobody knows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from chatsite.errors import AppError, InvalidInput
from inference.completions.errors import InvalidType, InvalidValue, MissingParameter, UnknownParameter, Unsupported
from inference.protocol import Role, Sampling, Turn

T = TypeVar("T", bound="CommonBody")
MAX_STOPS = 4
MAX_MESSAGES = 4096
MAX_PROMPTS = 128  # prompts of one call, times n
TOP_LOGPROBS = 20
COMPLETION_TOKENS = 16  # of /v1/completions, where the call does not say; as the reference has it
ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}

Text = Annotated[str, Meta(min_length=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool | None = None  # there is none


class JsonSchema(Struct):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class CommonBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What both routes take. Not an engine's parameter until `sampling` makes it one."""

    model: Text
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
    stop: Text | Annotated[list[Text], Meta(max_length=MAX_STOPS)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    logit_bias: dict[str, Bias] | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None

    @property
    def streams(self) -> bool:
        return bool(self.stream)

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def extra(self) -> dict[str, Any]:
        """What the engine knows by the same name."""
        names = ("top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.response_format is not None and self.response_format.type != "text":
            found["response_format"] = _plain(self.response_format)
        return found


class Part(Struct):
    """Of a message's content. Only text is read."""

    type: str
    text: str | None = None


class ChatMessage(Struct, forbid_unknown_fields=True):
    """A turn. Clients send an answer's message back as they got it, so its empty fields are taken, too."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: Any = None
    function_call: Any = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChatBody(CommonBody, kw_only=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    # Accepted, without effect here
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Named to be refused
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None


class CompletionBody(CommonBody, kw_only=True):
    prompt: str | list[str | TokenId | list[TokenId]]  # a text, texts, token ids, or lists of them
    logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


@dataclass(frozen=True)
class Call:
    """One call, checked. `prompts`: turns of a chat, a text, or token ids; each is answered `n` times.

    `max_tokens` None: whatever there is room for, up to the site's default.
    """

    model: str
    chat: bool
    prompts: Sequence[list[Turn] | str | list[int]]
    n: int
    max_tokens: int | None
    stream: bool
    include_usage: bool
    echo: bool
    options: Sampling  # its max_tokens is not set yet
    param: str = field(default="messages")  # where a prompt that is too long is blamed

    @property
    def logprobs(self) -> bool:
        return self.options.logprobs is not None


def read_chat(data: bytes) -> Call:
    """Raises InvalidInput kinds."""
    body = _decode(ChatBody, data)
    for name in ("tools", "functions", "audio", "prediction", "web_search_options"):
        if getattr(body, name):
            raise Unsupported(f"'{name}' is not supported by this site.", param=name)
    if body.modalities not in (None, ["text"]):
        raise Unsupported("Only the modality 'text' is supported by this site.", param="modalities")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidValue("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
    turns = [_turn(index, message) for index, message in enumerate(body.messages)]
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return _call(body, chat=True, prompts=[turns], max_tokens=limit, logprobs=logprobs)


def read_completion(data: bytes) -> Call:
    """Raises InvalidInput kinds."""
    body = _decode(CompletionBody, data)
    if body.suffix:
        raise Unsupported("'suffix' is not supported by this site.", param="suffix")
    if body.best_of not in (None, body.n or 1):
        raise Unsupported("'best_of' other than 'n' is not supported by this site.", param="best_of")
    if body.echo and body.logprobs is not None:
        raise Unsupported("'echo' together with 'logprobs' is not supported by this site.", param="echo")
    prompts = _prompts(body.prompt)
    if len(prompts) * (body.n or 1) > MAX_PROMPTS:
        raise InvalidValue(f"A call may have {MAX_PROMPTS} prompts, times 'n'.", param="prompt")
    limit = body.max_tokens if body.max_tokens is not None else COMPLETION_TOKENS
    return _call(body, chat=False, prompts=prompts, max_tokens=limit, logprobs=body.logprobs)


def _call(
    body: "ChatBody | CompletionBody",
    *,
    chat: bool,
    prompts: Sequence[list[Turn] | str | list[int]],
    max_tokens: int | None,
    logprobs: int | None,
) -> Call:
    if body.stream_options is not None and not body.stream:
        raise InvalidValue("'stream_options' is only allowed when 'stream' is true.", param="stream_options")
    wants_schema = body.response_format is not None and body.response_format.type == "json_schema"
    if wants_schema and (body.response_format is None or body.response_format.json_schema is None):
        raise MissingParameter("Missing required parameter: 'response_format.json_schema'.", param="response_format")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise InvalidValue("'min_tokens' must not be more than the most tokens allowed.", param="min_tokens")
    for token_id in body.logit_bias or ():
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) < 10):
            raise InvalidValue("The keys of 'logit_bias' must be token ids.", param="logit_bias")
    options = Sampling(
        max_tokens=0,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        min_tokens=body.min_tokens or 0,
        stop=body.stops,
        logprobs=logprobs,
        extra=body.extra(),
    )
    return Call(
        model=body.model,
        chat=chat,
        prompts=prompts,
        n=body.n or 1,
        max_tokens=max_tokens,
        stream=body.streams,
        include_usage=body.include_usage,
        echo=not chat and bool(getattr(body, "echo", False)),
        options=options,
        param="messages" if chat else "prompt",
    )


def _turn(index: int, message: ChatMessage) -> Turn:
    place = f"messages[{index}]"
    role = ROLES.get(message.role)
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise Unsupported("Tool calls are not supported by this site.", param=f"{place}.role")
    if role is None:
        known = ", ".join(f"'{name}'" for name in ROLES)
        raise InvalidValue(
            f"Invalid value: '{message.role[:50]}'. Supported values are: {known}.", param=f"{place}.role"
        )
    if message.content is None and role is not Role.ASSISTANT:
        raise MissingParameter(f"Missing required parameter: '{place}.content'.", param=f"{place}.content")
    return Turn(role, _content(place, message.content))


def _content(place: str, content: str | list[Part] | None) -> str:
    if isinstance(content, list):
        for number, part in enumerate(content):
            if part.type != "text" or part.text is None:
                raise Unsupported(
                    f"This site reads text only, not '{part.type[:50]}'.", param=f"{place}.content[{number}]"
                )
        content = "\n".join(part.text or "" for part in content)
    text = content or ""
    _check_text(text, f"{place}.content")
    return text


def _prompts(prompt: Any) -> list[Any]:
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif not prompt:
        raise InvalidValue("'prompt' must not be empty.", param="prompt")
    elif len({type(one) for one in prompt}) > 1:
        raise InvalidType("'prompt' must be texts or token ids, not both.", param="prompt")
    else:
        prompts = [prompt] if isinstance(prompt[0], int) else prompt
    for one in prompts:
        if not one:
            raise InvalidValue("'prompt' must not be empty.", param="prompt")
        if isinstance(one, str):
            _check_text(one, "prompt")
    return prompts


def _check_text(text: str, param: str) -> None:
    if "\0" in text:
        raise InvalidValue("The text contains a NUL character.", param=param)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("The text contains half a surrogate pair.", param=param) from None


def _plain(value: Struct) -> Any:
    """As the engine gets it: without what the caller left out."""
    return {
        name: (_plain(item) if isinstance(item, Struct) else item)
        for name, item in msgspec.structs.asdict(value).items()
        if item is not None
    }


# Decoding, with errors that name the parameter as the reference does

_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`\Z")


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _decode(kind: type[T], data: bytes) -> T:
    try:
        decoded: T = _decoder(kind).decode(data)
        return decoded
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidInput("The body is nested too deeply.") from error


def _explained(text: str) -> AppError:
    place = _PLACE.search(text)
    message = text[: place.start()] if place else text
    path = place["path"] if place else ""
    if unknown := re.search(r"unknown field `([^`]*)`", message):
        name = f"{path}.{unknown[1]}" if path else unknown[1]
        return UnknownParameter(f"Unknown parameter: '{name[:100]}'.", param=name[:100])
    if missing := re.search(r"missing required field `([^`]*)`", message):
        name = f"{path}.{missing[1]}" if path else missing[1]
        return MissingParameter(f"Missing required parameter: '{name}'.", param=name)
    wrong_type = ", got `" in message
    shown = path or "the body"
    kind: Mapping[bool, type[InvalidInput]] = {True: InvalidType, False: InvalidValue}
    return kind[wrong_type](
        f"Invalid {'type' if wrong_type else 'value'} for '{shown}': {message[:1].lower()}{message[1:]}.",
        param=path or None,
    )
