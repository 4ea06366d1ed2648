"""`/v1/chat/completions`, `/v1/completions` and `/v1/models`, as every client of the OpenAI API speaks them.

A closed connection cancels its call, which frees the engine; settings.COMPLETIONS_OUTLIVE_CALLERS changes that. With an
`Idempotency-Key` several may follow one call (`keyed`), and the last that closes cancels it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from chatsite.accounts.protocol import Principal
from chatsite.errors import AppError
from chatsite.raw import Answer, Handler, JsonAnswer, RawRequest, Route, StreamAnswer
from chatsite.scopes import Scope
from inference import readers, selectors, tokenization
from inference.completions.acceptance import Accepted, accept, take_over
from inference.completions.annulment import annul
from inference.completions.calls import Call, read_chat, read_completion
from inference.completions.ending import cancel, go_on
from inference.completions.errors import CallerGone
from inference.completions.keyed import accept_once
from inference.completions.reader import Ended, Piece, as_told_now, failure, follow
from inference.completions.wire import DONE, WAITING, AnswerHead, Chunks, Whole
from inference.errors import UnknownModel
from inference.models import Model
from inference.presence import Hold, Presence
from inference.protocol import FALLBACK_HEADER, Result
from quotas import selectors as quota_selectors
from quotas.headers import limit_headers, limited

log = structlog.get_logger(__name__)
# A call that fails at once gets a status of its own: the headers of a stream wait so long for a first word.
FIRST_WORD_SECONDS = 1.0
presence = Presence()


# Handlers. Their docstrings are the operations' descriptions in the OpenAPI document.


@limited
async def create_chat_completion(request: RawRequest) -> Answer:
    """Answers a conversation, as OpenAI's API does: in one piece, or with `"stream": true` as chunks.

    Nothing of it is kept. A connection that closes cancels the call.
    """
    return await _complete(request, read_chat(request.body))


@limited
async def create_completion(request: RawRequest) -> Answer:
    """Continues a text, or token ids, as OpenAI's API does. Nothing of it is kept."""
    return await _complete(request, read_completion(request.body))


@limited
async def list_models(request: RawRequest) -> Answer:
    """The models that the caller's plan allows, in the order of the operator's choice; the first is the default."""
    plan = await quota_selectors.aplan_of(request.principal.organization_id)
    models = [_model(model) for model in await selectors.models_for(plan.tier, plan.models)]
    return JsonAnswer(200, {"object": "list", "data": models})


@limited
async def retrieve_model(request: RawRequest) -> Answer:
    """One model, by its name."""
    plan = await quota_selectors.aplan_of(request.principal.organization_id)
    name = request.params["name"]
    for model in await selectors.models_for(plan.tier, plan.models):
        if model.name == name:
            return JsonAnswer(200, _model(model))
    raise UnknownModel(f"There is no model named {name[:100]!r}.", param="model")


def _model(model: selectors.ModelInfo) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "organization",
        "title": model.title,
        "context_length": model.context_length,
        "state": model.state,
    }


# A call, once


async def _complete(request: RawRequest, call: Call) -> Answer:
    hold = presence.hold()  # before there is a request that is cancelled without it
    caller_id = None if settings.COMPLETIONS_OUTLIVE_CALLERS else presence.id
    key, reader = request.headers.get("idempotency-key"), None
    if key is None:
        accepted = await accept(request.principal, call, caller_id=caller_id)
    else:
        route = f"POST {request.scope['path']}"
        accepted, reader = await accept_once(request.principal, route, key, request.body, call, caller_id)
    return await _answer(request, call, accepted, Running(request.principal, accepted, hold, reader))


async def _answer(request: RawRequest, call: Call, accepted: Accepted, running: "Running") -> Answer:
    if not settings.COMPLETIONS_OUTLIVE_CALLERS:
        request.disconnected.then(running.leave)
    headers = accepted.remaining.headers() if accepted.remaining else await limit_headers(request.principal)
    if accepted.model != call.model:
        headers = {**headers, FALLBACK_HEADER: call.model}
    items = running.items(await selectors.aget_model(accepted.model) if call.logprobs else None)
    if not call.stream:
        try:
            return JsonAnswer(200, await _whole(request, call, accepted, items), headers)
        except CallerGone:
            raise  # what was made until then is charged
        except AppError:
            go_on(annul(accepted.requests))
            raise
    first = asyncio.ensure_future(anext(items))
    await asyncio.wait([first], timeout=FIRST_WORD_SECONDS)
    if first.done() and (error := first.exception()) is not None:
        is_gone = isinstance(error, AppError) and request.disconnected.is_set()
        raise CallerGone if is_gone else error
    return StreamAnswer(_chunks(call, accepted, first, items), headers)


class Running:
    """A call on its way. What of it still runs is cancelled when its last reader stops early or goes away, and for all
    readers when one choice has failed. `reader`: of a call that may have others."""

    def __init__(self, principal: Principal, accepted: Accepted, hold: Hold, reader: str | None) -> None:
        self._principal, self._hold = principal, hold
        self._stay = readers.Stay(accepted.requests, reader, hold) if reader is not None else None
        self._requests = accepted.requests
        self._open = set(accepted.requests)

    async def items(self, model: Model | None) -> AsyncGenerator[Piece | Ended, None]:
        """As `reader.follow`. Raises what made a choice fail."""
        try:
            async with aclosing(follow(self._requests, model)) as items:
                async for item in items:
                    if isinstance(item, Ended):
                        self._open.discard(self._requests[item.choice])
                        if (error := failure(item.result)) is not None:
                            self._go_on(cancel)
                            raise await as_told_now(error, self._principal)
                    yield item
        finally:
            if not settings.COMPLETIONS_OUTLIVE_CALLERS:
                self.leave()

    def leave(self) -> None:
        """Idempotent. Goes on by itself: whoever calls may be ending."""
        stay = self._stay
        if stay is not None:
            stay.end()  # also where nothing runs any more
        self._go_on(cancel if stay is None else partial(_leave, stay))

    def _go_on(self, ending: Callable[[set[UUID]], Coroutine[Any, Any, None]]) -> None:
        requests, self._open = self._open, set()
        if requests:
            go_on(ending(requests))


async def _leave(stay: readers.Stay, requests: set[UUID]) -> None:
    """Cancels what nobody else reads; the rest is another process's from now on, whose end would end it."""
    try:
        left = await stay.leave(list(requests))
    except (RedisError, OSError) as error:
        log.warning("other readers are not known", error=str(error))
        left = {}  # they are told to send the call again
    for request_id in requests:
        if others := left.get(request_id):
            await take_over([request_id], others[0])
    await cancel({request_id for request_id in requests if not left.get(request_id)})


def _head(call: Call, accepted: Accepted) -> AnswerHead:
    return AnswerHead(
        chat=call.chat,
        id=accepted.naming.id,
        created=accepted.naming.created,
        model=accepted.model,
        service_tier=call.service_tier,
    )


async def _chunks(
    call: Call,
    accepted: Accepted,
    first: "asyncio.Future[Piece | Ended]",
    items: AsyncGenerator[Piece | Ended, None],
) -> AsyncGenerator[bytes, None]:
    chunks = Chunks(_head(call, accepted), usage=call.include_usage, top=call.options.logprobs or 0)
    results: list[Result] = []
    async with aclosing(items):
        ahead = await _opening(call, chunks, len(accepted.requests))  # what is known together is sent together
        if not first.done():  # the caller knows that it is accepted; nothing looks like a first token that is none
            yield WAITING
        async for item in _from(first, items):
            if isinstance(item, Piece):
                yield ahead + chunks.text(item.choice, item.text, item.logprobs)
            else:
                results.append(item.result)
                last = len(results) == len(accepted.requests)
                closing = _closing(call, chunks, accepted, results) if last else b""
                yield ahead + chunks.end(item.choice, item.result) + closing
            ahead = b""


async def _opening(call: Call, chunks: Chunks, choices: int) -> bytes:
    opening = b""
    for choice in range(choices):
        if call.chat:
            opening += chunks.role(choice)
        elif call.echo and (prompt := await _prompt_text(call, choice // call.n)):
            opening += chunks.text(choice, prompt, None)
    return opening


def _closing(call: Call, chunks: Chunks, accepted: Accepted, results: Sequence[Result]) -> bytes:
    return (chunks.usage(accepted.prompt_tokens, results) if call.include_usage else b"") + DONE


async def _from(
    first: "asyncio.Future[Piece | Ended]", items: AsyncGenerator[Piece | Ended, None]
) -> AsyncGenerator[Piece | Ended, None]:
    yield await first
    async for item in items:
        yield item


async def _whole(
    request: RawRequest, call: Call, accepted: Accepted, items: AsyncGenerator[Piece | Ended, None]
) -> dict[str, Any]:
    """Raises what made a choice fail. A caller that goes away is not waited for."""
    prompts = [await _prompt_text(call, index) if call.echo else "" for index in range(len(call.prompts))]
    whole = Whole(_head(call, accepted), prompts=prompts, n=call.n, top=call.options.logprobs or 0)
    gathering = asyncio.create_task(_gather(whole, items))
    gone = asyncio.create_task(request.disconnected.wait())
    try:
        await asyncio.wait([gathering, gone], return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            raise CallerGone
        gathering.result()
    finally:
        gathering.cancel()
        gone.cancel()
    return whole.answer(accepted.prompt_tokens, logprobs=call.logprobs)


async def _gather(whole: Whole, items: AsyncGenerator[Piece | Ended, None]) -> None:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Piece):
                whole.add(item.choice, item.text, item.logprobs)
            else:
                whole.results[item.choice] = item.result


async def _prompt_text(call: Call, index: int) -> str:
    prompt = call.prompts[index]
    if isinstance(prompt, str):
        return prompt
    model = await selectors.aget_model(call.model)
    return await tokenization.decode_ids(model, prompt)  # type: ignore[arg-type] # no turns: only texts are echoed


def _route(method: str, pattern: str, handler: Handler) -> Route:
    return Route((method,), re.compile(pattern), handler, Scope.READ if method == "GET" else Scope.CHAT, openai=True)


CHAT_COMPLETIONS = _route("POST", "/v1/chat/completions", create_chat_completion)
COMPLETIONS = _route("POST", "/v1/completions", create_completion)
MODELS = _route("GET", "/v1/models", list_models)
MODEL = _route("GET", "/v1/models/(?P<name>.+)", retrieve_model)
ROUTES = [CHAT_COMPLETIONS, COMPLETIONS, MODELS, MODEL]
