"""Where the link of an invitation leads, signed in or not."""

from http import HTTPStatus

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_variables

from chatsite.accounts import audit, invitations, selectors, services
from chatsite.accounts.errors import InvitationEnded
from chatsite.accounts.key_views import asks_or_does
from chatsite.accounts.models import User
from chatsite.accounts.protocol import Via
from chatsite.errors import AppError


@asks_or_does
@sensitive_variables("token")
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """GET says what it is, and changes nothing, since mail scanners open links too. POST joins."""
    user = request.user if isinstance(request.user, User) else None
    try:
        found = invitations.find(token)
        if request.method == "POST" and user is not None:
            return _join(request, token, user)
    except AppError as error:
        ended = isinstance(error, InvitationEnded)
        return render(
            request, "accounts/invitation_refused.html", {"error": error, "ended": ended}, status=error.status
        )
    context = {
        "invitation": found,
        "token": token,
        "user": user,
        "is_for": user is not None and invitations.is_for(found, user),
        "is_member": user is not None and selectors.role_of(user.pk, found.organization_id) is not None,
    }
    status = HTTPStatus.UNAUTHORIZED if request.method == "POST" else HTTPStatus.OK
    return render(request, "accounts/invitation.html", context, status=status)


def _join(request: HttpRequest, token: str, user: User) -> HttpResponse:
    place = invitations.accept(token, user, audit.actor_of(request, Via.PAGE))
    services.work_in(user, request.session, place.organization_id)
    messages.success(request, f"You have joined {place.organization.name}, and work there now.")
    return redirect("organization", place.organization.public_id)
