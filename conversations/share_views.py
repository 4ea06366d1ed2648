"""Sharing a conversation, and the page that others see."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from chatsite.concurrency import in_thread
from chatsite.database import run_db
from chatsite.error_responses import error_page
from chatsite.errors import AppError, NotFound
from chatsite.ids import public_id
from conversations import shares
from conversations.models import Share
from conversations.pages import conversation_id
from conversations.shares import Links
from conversations.visitors import Visitor, allow, signed_in, to_login, visitor_of

# For the author's page alone: kept by nobody, found by no search engine, told to no other site
SHARED_HEADERS = {
    "X-Robots-Tag": "noindex, nofollow",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}


@allow("GET", "HEAD", "POST")
@signed_in
async def sharing(request: HttpRequest, visitor: Visitor, conversation: str) -> HttpResponse:
    """What the dialog shows: the links of a conversation. POST makes one for the conversation as it is now."""
    found = conversation_id(conversation)
    if request.method == "POST":
        await run_db(shares.create_share, visitor.principal, found)
    return _dialog(request, conversation, await run_db(shares.links_of, visitor.principal, found))


@allow("POST")
@signed_in
async def stop_sharing(request: HttpRequest, visitor: Visitor, token: str) -> HttpResponse:
    revoked = await run_db(shares.revoke_share, visitor.principal, token)
    left = await run_db(shares.links_of, visitor.principal, revoked.conversation_id)
    return _dialog(request, public_id("conv", revoked.conversation_id), left)


@allow("GET", "HEAD")
async def shared(request: HttpRequest, token: str) -> HttpResponse:
    """For people who are signed in; for anybody with settings.PUBLIC_SHARES."""
    if not settings.PUBLIC_SHARES and await visitor_of(request) is None:
        return to_login(request)
    try:
        page = await run_db(shares.read_shared, token, _number(request.GET.get("page", "1")))
    except AppError as error:
        answer = error_page(request, error)
    else:
        answer = await in_thread(render, request, "conversations/shared.html", {"page": page})
    for name, value in SHARED_HEADERS.items():
        answer[name] = value
    return answer


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise NotFound
    return int(text)


def _dialog(request: HttpRequest, conversation: str, links: Links) -> HttpResponse:
    def address(share: Share) -> str:
        return request.build_absolute_uri(reverse("shared", args=[share.token]))

    context = {
        "conversation": conversation,
        "links": [(share, address(share)) for share in links.shares],
        "up_to_date": links.up_to_date,
        "public": settings.PUBLIC_SHARES,
    }
    return render(request, "conversations/share.html", context)
