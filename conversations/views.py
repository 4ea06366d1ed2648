"""The chat page: its first rendering, and what htmx asks for over HTTP. What is live goes over the WebSocket."""

import asyncio
from functools import partial

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.error_responses import error_page
from chatsite.errors import AppError, NotFound
from chatsite.ids import public_id
from conversations import frames, services
from conversations.articles import Branch
from conversations.models import Conversation
from conversations.pages import MODEL_COOKIE, load, load_choices, load_page
from conversations.visitors import Visitor, allow, signed_in

_beginnings: set[asyncio.Task[Conversation]] = set()  # strong references: the loop keeps only weak ones


@allow("GET", "HEAD", "POST")
@signed_in
async def new_chat(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """GET: an empty chat. POST `content`, `model`: begins a conversation with that message."""
    if request.method == "POST":
        return await _start(request, visitor)
    page = await load_page(visitor, None, Branch([]), request.COOKIES.get(MODEL_COOKIE, ""))
    return render(request, "conversations/chat.html", {"page": page})


@allow("GET", "HEAD")
@signed_in
async def conversation(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    found, branch = await run_db(load, visitor.principal, conversation)
    page = await load_page(visitor, found, branch)
    return render(request, "conversations/chat.html", {"page": page})


@allow("GET", "HEAD")
@signed_in
async def earlier(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """The turns before `cursor`, to be put ahead of those that the page shows."""
    _, branch = await run_db(load, visitor.principal, conversation, request.GET.get("cursor"))
    page = {"conversation": conversation, "articles": branch.articles, "earlier": branch.earlier}
    return render(request, "conversations/thread.html", {"page": page})


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
    content, model = request.POST.get("content", ""), request.POST.get("model") or None
    beginning = asyncio.create_task(_begin(principal, content, model))
    _beginnings.add(beginning)
    beginning.add_done_callback(_beginnings.discard)
    try:
        created = await asyncio.shield(beginning)  # a visitor who leaves meanwhile leaves no empty conversation
    except AppError as error:
        return _refused(request, error)
    public = public_id("conv", created.id)
    if "HX-Request" not in request.headers:
        return HttpResponseRedirect(f"/c/{public}")
    found, branch = await run_db(load, principal, public)
    page = await load_page(visitor, found, branch)
    html = render_to_string("conversations/started.html", {"page": page}, request)
    return HttpResponse(html, headers={"HX-Push-Url": f"/c/{public}"})


async def _begin(principal: Principal, content: str, model: str | None) -> Conversation:
    """A conversation with its first message, or nothing."""
    services.check_content(content)
    created = await run_db(partial(services.create_conversation, principal, model=model))
    try:
        await services.send(principal, created.id, content)
    except Exception:  # whatever it was, it is raised again: nothing half-written stays
        await services.delete_conversation(principal, created.id)
        raise
    return created


def _refused(request: HttpRequest, error: AppError) -> HttpResponse:
    """A whole page for those without scripts; of it, htmx takes the sentence and leaves the draft where it is."""
    return error_page(request, error, title="Not sent", detail=frames.refusal(error))
