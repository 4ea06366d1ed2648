"""The chat page: its first rendering, and what htmx asks for over HTTP. What is live goes over the WebSocket."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET, require_http_methods

from chatsite.accounts.authentication import user_principal
from chatsite.accounts.models import User
from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.error_responses import error_headers, handler400
from chatsite.errors import AppError, NotFound
from chatsite.ids import parse_id, public_id
from conversations import frames, selectors, services
from conversations.articles import Article, Branch, load_branch
from conversations.models import Conversation
from conversations.sidebar import UNTITLED, Group, load_groups, title_of
from inference.selectors import ModelInfo, models_for
from quotas.selectors import plan_of

P = ParamSpec("P")
STARTERS = (
    "Explain how tides work, in five sentences.",
    "Write a short, friendly reply that declines a meeting.",
    "Suggest a dinner from rice, eggs and spinach.",
    "What does this Python do: sorted(set(words), key=len)?",
)


_beginnings: set[asyncio.Task[Conversation]] = set()  # strong references: the loop keeps only weak ones


@dataclass(frozen=True)
class Visitor:
    email: str
    principal: Principal


@dataclass(frozen=True)
class Page:
    """What the templates show. `conversation` None: a new chat."""

    models: list[ModelInfo]
    model: ModelInfo
    groups: list[Group] = field(default_factory=list)
    email: str = ""
    title: str = UNTITLED
    conversation: str | None = None
    articles: Sequence[Article] = ()
    earlier: str | None = None
    starters: Sequence[str] = STARTERS

    @property
    def running(self) -> str | None:
        last = self.articles[-1] if self.articles else None
        return last.public_id if last and last.running else None


View = Callable[Concatenate[HttpRequest, Visitor, P], Awaitable[HttpResponse]]


def signed_in(view: View[P]) -> Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponse]]:
    """Gives the view its visitor; sends others to sign in. An error of ours becomes a page."""

    async def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        visitor = await run_db(_visitor, request)
        if visitor is None:
            return _to_login(request)
        try:
            return await view(request, visitor, *args, **kwargs)
        except AppError as error:
            return handler400(request, error)

    update_wrapper(guarded, view)
    return guarded


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
async def new_chat(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """GET: an empty chat. POST `content`, `model`: begins a conversation with that message."""
    if request.method == "POST":
        return await _start(request, visitor)
    page = await _page(visitor, None, Branch([]))
    return render(request, "conversations/chat.html", {"page": page})


@require_GET
@signed_in
async def conversation(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    found, branch = await run_db(_load, visitor.principal, conversation)
    page = await _page(visitor, found, branch)
    return render(request, "conversations/chat.html", {"page": page})


@require_GET
@signed_in
async def earlier(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """The turns before `cursor`, to be put ahead of those that the page shows."""
    _, branch = await run_db(_load, visitor.principal, conversation, request.GET.get("cursor"))
    page = {"conversation": conversation, "articles": branch.articles, "earlier": branch.earlier}
    return render(request, "conversations/thread.html", {"page": page})


@require_GET
@signed_in
async def model_state(request: HttpRequest, visitor: Visitor, name: str) -> HttpResponse:
    """Asked every few seconds while a model is not ready."""
    models = await _models(visitor.principal)
    found = next((model for model in models if model.name == name), None)
    if found is None:
        raise NotFound
    return render(request, "conversations/model_state.html", {"model": found})


async def _start(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    principal = visitor.principal
    content, model = request.POST.get("content", ""), request.POST.get("model") or None
    beginning = asyncio.create_task(_begin(principal, content, model))
    _beginnings.add(beginning)
    beginning.add_done_callback(_beginnings.discard)
    try:
        created = await asyncio.shield(beginning)  # a visitor who leaves meanwhile leaves no empty conversation
    except AppError as error:
        return _refused(error)
    address = f"/c/{public_id('conv', created.id)}"
    if "HX-Request" not in request.headers:
        return HttpResponseRedirect(address)
    found, branch = await run_db(_load, principal, public_id("conv", created.id))
    page = await _page(visitor, found, branch)
    html = render_to_string("conversations/started.html", {"page": page}, request)
    return HttpResponse(html, headers={"HX-Push-Url": address})


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


def _refused(error: AppError) -> HttpResponse:
    """A whole page for those without scripts; of it, htmx takes the sentence and leaves the draft where it is."""
    context = {"title": "Not sent", "detail": frames.refusal(error)}
    html = render_to_string("chatsite/error.html", context)
    return HttpResponse(html, status=error.status, headers=error_headers(error))


def _to_login(request: HttpRequest) -> HttpResponse:
    if "HX-Request" in request.headers:
        return HttpResponse(status=401, headers={"HX-Refresh": "true"})
    return redirect_to_login(request.get_full_path())


# Loading


def _visitor(request: HttpRequest) -> Visitor | None:
    user = request.user
    return Visitor(user.email, user_principal(user)) if isinstance(user, User) and user.is_active else None


def _load(principal: Principal, public: str, cursor: str | None = None) -> tuple[Conversation, Branch]:
    conversation_id = parse_id("conv", public)
    if conversation_id is None:
        raise NotFound
    found = selectors.get_conversation(principal, conversation_id)
    return found, load_branch(principal, conversation_id, cursor)


async def _models(principal: Principal) -> list[ModelInfo]:
    plan = await run_db(plan_of, principal.organization_id)
    return await models_for(plan.tier)


async def _page(visitor: Visitor, found: Conversation | None, branch: Branch) -> Page:
    models = await _models(visitor.principal)
    groups = await run_db(load_groups, visitor.principal)
    about: dict[str, Any] = {"models": models, "groups": groups, "email": visitor.email}
    if found is None:
        return Page(model=models[0] if models else _absent("A model"), **about)
    name = await run_db(lambda: found.model.title or found.model.name)
    model = next((each for each in models if each.name == found.model_id), _absent(name))
    shown: dict[str, Any] = {
        "conversation": public_id("conv", found.id),
        "articles": branch.articles,
        "earlier": branch.earlier,
    }
    return Page(model=model, title=title_of(found), **shown, **about)


def _absent(title: str) -> ModelInfo:
    """Stands for a model that may not be used, or is gone from models.toml."""
    return ModelInfo(name="", title=title, context_length=0, tiers=[], state="down")
