"""The chat page: its first rendering, and what htmx asks for over HTTP. What is live goes over the WebSocket."""

import json
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from chatsite.accounts import idempotency
from chatsite.accounts.protocol import Principal
from chatsite.concurrency import in_thread
from chatsite.database import run_db
from chatsite.error_responses import error_page
from chatsite.errors import AppError, NotFound
from chatsite.ids import public_id
from conversations import demand, frames, services
from conversations.articles import Branch, load_article
from conversations.commands import earlier_answer, message_in
from conversations.flow import carry_through
from conversations.meters import load_meters
from conversations.pages import MODEL_COOKIE, conversation_id, find_elsewhere, load, load_choices, load_page
from conversations.visitors import Visitor, allow, signed_in
from inference.protocol import Cursor

ROUTE = "POST /"  # of idempotent calls


@allow("GET", "HEAD", "POST")
@signed_in
async def new_chat(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """GET: an empty chat. POST `content`, `model`: begins a conversation with that message.

    With an `id`, made by the page, a repeated POST is answered with the conversation that the first one began.
    """
    if request.method == "POST":
        return await _start(request, visitor)
    page = await load_page(visitor, None, Branch([]), request.COOKIES.get(MODEL_COOKIE, ""))
    return render(request, "conversations/chat.html", {"page": page})


@allow("GET", "HEAD")
@signed_in
async def conversation(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    try:
        found, branch = await run_db(load, visitor.principal, conversation)
    except NotFound:
        elsewhere = await run_db(find_elsewhere, visitor.principal, conversation)
        if elsewhere is None:
            raise
        return render(request, "conversations/elsewhere.html", {"elsewhere": elsewhere}, status=HTTPStatus.NOT_FOUND)
    page = await load_page(visitor, found, branch)
    return await in_thread(render, request, "conversations/chat.html", {"page": page})


@allow("GET", "HEAD")
@signed_in
async def earlier(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """The turns before `cursor`, to be put ahead of those that the page shows."""
    _, branch = await run_db(load, visitor.principal, conversation, request.GET.get("cursor"))
    page = {"conversation": conversation, "articles": branch.articles, "earlier": branch.earlier}
    return await in_thread(render, request, "conversations/thread.html", {"page": page})


@allow("GET", "HEAD")
@signed_in
async def turn(request: HttpRequest, visitor: Visitor, conversation: str, message: str) -> HttpResponse:
    """One turn, for a page that was told of one too large for its socket."""
    found = await message_in(visitor.principal, conversation_id(conversation), message)
    article = await run_db(load_article, visitor.principal, found)
    return await in_thread(render, request, "conversations/article.html", {"article": article})


@allow("GET", "HEAD")
@signed_in
async def model_state(request: HttpRequest, visitor: Visitor, name: str) -> HttpResponse:
    """Asked every few seconds while a model is not ready."""
    found = next((each.model for each in await load_choices(visitor.principal) if each.model.name == name), None)
    if found is None:
        raise NotFound
    return render(request, "conversations/model_state.html", {"model": found})


@allow("GET", "HEAD")
@signed_in
async def model_list(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The models of the menu as they are now; `model` is the one that is chosen."""
    choices = await load_choices(visitor.principal)
    context = {"choices": choices, "chosen": request.GET.get("model", "")}
    return render(request, "conversations/model_list.html", context)


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """For what asks for it unprompted."""
    return HttpResponseRedirect(static("favicon.svg"), headers={"Cache-Control": "public, max-age=86400"})


async def _start(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    principal = visitor.principal
    text = FirstMessage(request.POST.get("content", ""), request.POST.get("model") or None)
    try:  # a visitor who leaves meanwhile leaves no empty conversation
        public = await carry_through(_begin_once(principal, text, request.POST.get("id") or None))
    except AppError as error:
        return await _refused(request, principal, text, error)
    if "HX-Request" not in request.headers:
        return HttpResponseRedirect(f"/c/{public}")
    found, branch = await run_db(load, principal, public)
    page = await load_page(visitor, found, branch)
    html = await in_thread(render_to_string, "conversations/started.html", {"page": page}, request)
    return HttpResponse(html, headers={"HX-Push-Url": f"/c/{public}"})


class FirstMessage(NamedTuple):
    """What a conversation begins with. `model` None: the first that the plan allows."""

    content: str
    model: str | None


async def _begin_once(principal: Principal, text: FirstMessage, key: str | None) -> str:
    """The public id of the conversation: of a new one, or of the one that was begun with this key before."""
    if key is None:
        return await _begin(principal, text)
    services.check_content(text.content)  # first: what is no text has no digest
    answered = await earlier_answer(principal, ROUTE, key, json.dumps(text).encode())
    if answered is not None:
        return str(answered.answer["conversation"])
    try:
        return await _begin(principal, text, key)
    except BaseException:
        await idempotency.abandon(principal, ROUTE, key)
        raise


async def _begin(principal: Principal, text: FirstMessage, key: str | None = None) -> str:
    """A conversation with its first message, or nothing."""
    services.check_content(text.content)
    created = await run_db(partial(services.create_conversation, principal, model=text.model))
    public = public_id("conv", created.id)

    def remember(message: UUID, base: Cursor | None) -> None:
        if key is not None:
            idempotency.record(principal, ROUTE, key, 200, {"conversation": public})

    try:
        await services.send(principal, created.id, text.content, remember=remember)
    except Exception:  # whatever it was, it is raised again: nothing half-written stays
        await services.delete_conversation(principal, created.id)
        raise
    return public


async def _refused(request: HttpRequest, principal: Principal, text: "FirstMessage", error: AppError) -> HttpResponse:
    """A whole page for those without scripts; of it, htmx takes the sentence and leaves the draft where it is.

    What is said to be used up should not look free: the figures under the message box come with it.
    """
    smaller = await demand.smaller_for(principal, error, text.model, text.content)
    detail = frames.refusal(await demand.worded(principal, error), smaller)
    page = error_page(request, error, title="Not sent", detail=detail)
    if "HX-Request" in request.headers and error.status == HTTPStatus.TOO_MANY_REQUESTS:
        page.write(frames.meters(await load_meters(principal, None, 0)))
    return page
