"""What a key's page sends about pausing it."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from chatsite.accounts import audit, pausing
from chatsite.accounts.models import User
from chatsite.accounts.pages import signed_in
from chatsite.accounts.protocol import Via
from chatsite.errors import NotFound
from chatsite.ids import parse_id


@require_POST
@signed_in
def resume(request: HttpRequest, user: User, key: str) -> HttpResponse:
    found = pausing.resume(user, _id(key), audit.actor_of(request, Via.PAGE))
    messages.success(request, "The key works again.")
    return redirect("account_key", key=found.public_id)


@require_POST
@signed_in
def choose(request: HttpRequest, user: User, key: str) -> HttpResponse:
    pauses = request.POST.get("pauses") == "on"
    found = pausing.choose(user, _id(key), audit.actor_of(request, Via.PAGE), pauses=pauses)
    words = "It will be paused when it spends ten times what is usual." if pauses else "It will not be paused."
    messages.success(request, words)
    return redirect("account_key", key=found.public_id)


def _id(key: str) -> UUID:
    """Raises NotFound."""
    key_id = parse_id("key", key)
    if key_id is None:
        raise NotFound
    return key_id
