"""The sidebar over HTTP: more of the list, search, and what is done to one conversation."""

import re
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from chatsite.accounts.protocol import Principal
from chatsite.database import run_db
from chatsite.errors import InvalidInput
from chatsite.text_checks import line_problem
from conversations import frames, services, sidebar
from conversations.models import Conversation
from conversations.pages import conversation_id
from conversations.visitors import Visitor, allow, signed_in

MAX_TITLE = Conversation._meta.get_field("title").max_length or 0
_SHOWN = re.compile(r"/c/(conv_[0-9a-f-]{36})(?:[?#]|\Z)")


@allow("GET", "HEAD")
@signed_in
async def older(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The conversations after `cursor`."""
    groups = await run_db(sidebar.load_groups, visitor.principal, request.GET.get("cursor", ""))
    context = {"groups": groups, "current": shown_by(request)}
    return render(request, "conversations/older.html", context)


@allow("GET", "HEAD")
@signed_in
async def search(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The conversations with `q`; nothing at all without it, which brings back the list."""
    query = request.GET.get("q", "")
    if not query.strip():
        return HttpResponse()
    findings = await run_db(sidebar.search, visitor.principal, query)
    context = {"findings": findings, "query": query, "current": shown_by(request)}
    return render(request, "conversations/found.html", context)


@allow("POST")
@signed_in
async def rename(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """Gives a conversation the `title` of the form."""
    title = checked_title(request.POST.get("title", ""))
    change = partial(services.update_conversation, visitor.principal, conversation_id(conversation), title=title)
    await run_db(change)
    html = await _list(visitor.principal, shown_by(request))
    if shown_by(request) == conversation:
        html += frames.title(title)
    return HttpResponse(html)


@allow("POST")
@signed_in
async def delete(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """Deletes a conversation for good. Who looks at it is led to a new chat."""
    await services.delete_conversation(visitor.principal, conversation_id(conversation))
    if "HX-Request" not in request.headers or shown_by(request) == conversation:
        return HttpResponse(status=204, headers={"HX-Redirect": "/"})
    return HttpResponse(await _list(visitor.principal, shown_by(request)))


def checked_title(title: str) -> str:
    """On one line, without blanks around it. Raises InvalidInput."""
    found = " ".join(title.split())
    if problem := line_problem(found):
        raise InvalidInput(problem, param="title")
    if not found:
        raise InvalidInput("A title needs at least one character.", param="title")
    if len(found) > MAX_TITLE:
        raise InvalidInput(f"A title may have {MAX_TITLE} characters; this one has {len(found)}.", param="title")
    return found


def shown_by(request: HttpRequest) -> str:
    """The public id of the conversation that the asking page shows; empty for a new chat."""
    found = _SHOWN.search(request.headers.get("HX-Current-URL", ""))
    return found[1] if found else ""


async def _list(principal: Principal, current: str) -> str:
    return frames.conversations(await run_db(sidebar.load_groups, principal), current)
