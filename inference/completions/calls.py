"""From a body to a call of ours, checked. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from inference.completions.bodies import (
    MAX_FORMAT,
    MAX_FORMAT_DEPTH,
    MAX_PROMPTS,
    AssistantMessage,
    ChatBody,
    CompletionBody,
    Content,
    Message,
    UserMessage,
)
from inference.completions.decoding import decode
from inference.completions.errors import InvalidType, InvalidValue, Unsupported
from inference.protocol import Role, Sampling, Turn

Prompt = list[Turn] | str | list[int]  # of a chat, a text, or token ids
FLEX = "flex"  # the service tier of that name
COMPLETION_TOKENS = 16  # of /v1/completions, where the call does not say; as the reference has it


@dataclass(frozen=True)
class Call:
    """One call, checked. `prompts`: turns of a chat, a text, or token ids; each is answered `n` times.

    `max_tokens` None: whatever there is room for, up to the site's default. `flex`: in the batch lane, at half price.
    """

    model: str
    chat: bool
    prompts: Sequence[Prompt]
    n: int
    max_tokens: int | None
    stream: bool
    include_usage: bool
    echo: bool
    options: Sampling  # its max_tokens is not set yet
    allow_fallback: bool = False
    flex: bool = False
    param: str = field(default="messages")  # where a prompt that is too long is blamed

    @property
    def logprobs(self) -> bool:
        return self.options.logprobs is not None

    @property
    def service_tier(self) -> str | None:
        """What the answer says; None: nothing, which is the default."""
        return FLEX if self.flex else None

    @property
    def portable(self) -> bool:
        """Whether another model would read it the same way: token ids are of one model alone."""
        by_ids = any(prompt and isinstance(prompt[0], int) for prompt in self.prompts)
        return not by_ids and "logit_bias" not in self.options.extra


def read_chat(data: bytes) -> Call:
    """Raises InvalidInput kinds."""
    body = decode(ChatBody, data)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidValue("'top_logprobs' is only allowed when 'logprobs' is true.", param="top_logprobs")
    turns = [_turn(message) for message in body.messages]
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return _call(body, chat=True, prompts=[turns], max_tokens=limit, logprobs=logprobs)


def read_completion(data: bytes) -> Call:
    """Raises InvalidInput kinds."""
    body = decode(CompletionBody, data)
    if body.best_of not in (None, body.n or 1):
        raise Unsupported("'best_of' is only allowed when it is what 'n' is.", param="best_of")
    if body.echo and body.logprobs is not None:
        raise Unsupported("'echo' is only allowed when 'logprobs' is not there.", param="echo")
    prompts = _prompts(body.prompt)
    if len(prompts) * (body.n or 1) > MAX_PROMPTS:
        raise InvalidValue(f"A call may have {MAX_PROMPTS} prompts, times 'n'.", param="prompt")
    limit = body.max_tokens if body.max_tokens is not None else COMPLETION_TOKENS
    return _call(body, chat=False, prompts=prompts, max_tokens=limit, logprobs=body.logprobs, echo=bool(body.echo))


def _call(
    body: ChatBody | CompletionBody,
    *,
    chat: bool,
    prompts: Sequence[Prompt],
    max_tokens: int | None,
    logprobs: int | None,
    echo: bool = False,
) -> Call:
    if body.stream_options is not None and not body.stream:
        raise InvalidValue("'stream_options' is only allowed when 'stream' is true.", param="stream_options")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise InvalidValue("'min_tokens' is only allowed up to the most tokens of the answer.", param="min_tokens")
    for token_id in body.logit_bias or ():
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) < 10):
            raise InvalidValue("The keys of 'logit_bias' must be token ids.", param="logit_bias")
    extra = body.extra()
    _check_format(extra.get("response_format"))
    options = Sampling(
        max_tokens=0,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        min_tokens=body.min_tokens or 0,
        stop=body.stops,
        logprobs=logprobs,
        extra=extra,
    )
    return Call(
        model=body.model,
        chat=chat,
        prompts=prompts,
        n=body.n or 1,
        max_tokens=max_tokens,
        stream=bool(body.stream),
        include_usage=body.include_usage,
        echo=echo,
        options=options,
        allow_fallback=bool(body.allow_fallback),
        flex=body.service_tier == FLEX,
        param="messages" if chat else "prompt",
    )


def _turn(message: Message) -> Turn:
    role = Role.SYSTEM
    if isinstance(message, UserMessage):
        role = Role.USER
    elif isinstance(message, AssistantMessage):
        role = Role.ASSISTANT
    return Turn(role, _text(message.content))


def _text(content: Content | None) -> str:
    return "\n".join(part.text for part in content) if isinstance(content, list) else content or ""


def _prompts(prompt: str | list[Any]) -> list[Any]:
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif len(set(map(type, prompt))) > 1:
        raise InvalidType("'prompt' is only allowed to be texts or token ids, not both.", param="prompt")
    else:
        prompts = [prompt] if isinstance(prompt[0], int) else prompt
    return prompts


def _check_format(form: dict[str, Any] | None) -> None:
    if form is None:
        return
    size = len(msgspec.json.encode(form))
    if size > MAX_FORMAT:
        raise InvalidValue(
            f"'response_format' may have {MAX_FORMAT:,} bytes of JSON; this one has {size:,}.", param="response_format"
        )
    if _depth(form) > MAX_FORMAT_DEPTH:
        raise InvalidValue(f"'response_format' may be {MAX_FORMAT_DEPTH} levels deep.", param="response_format")


def _depth(form: dict[str, Any]) -> int:
    """How many objects and lists lie in each other, at most."""
    depth, level = 0, cast("list[dict[str, Any] | list[Any]]", [form])
    while level:
        depth += 1
        inner = [each for value in level for each in (value.values() if isinstance(value, dict) else value)]
        level = [each for each in inner if isinstance(each, (dict, list))]
    return depth
