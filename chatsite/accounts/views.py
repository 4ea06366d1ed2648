"""The account page. Everything it sends is a plain form, answered by a redirect back to it. Keys: `key_views`."""

from http import HTTPStatus

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from chatsite.accounts import keys, selectors, services, sessions
from chatsite.accounts.forms import NameForm
from chatsite.accounts.models import User
from chatsite.accounts.pages import back_to, signed_in
from chatsite.errors import NotFound


@require_safe
@signed_in
def account(request: HttpRequest, user: User) -> HttpResponse:
    key = request.session.session_key or ""
    if not UserSession.objects.filter(session_key=key).exists():  # one that allauth has not made
        UserSession.objects.create_from_request(request)
    sessions.note_seen(key)
    return _page(request, user)


@require_POST
@signed_in
def name(request: HttpRequest, user: User) -> HttpResponse:
    form = NameForm(request.POST)
    if not form.is_valid():
        return _page(request, user, name_form=form)
    services.rename(user, form.cleaned_data["name"])
    messages.success(request, "Your name is saved.")
    return back_to("profile")


@require_POST
@signed_in
def end_session(request: HttpRequest, user: User, session_id: int) -> HttpResponse:
    """Of somebody else, or gone already: the same answer."""
    if not sessions.end(user, session_id, request.session.session_key or ""):
        raise NotFound("That session has ended, or is not yours.")
    messages.success(request, "That session is signed out.")
    return back_to("sessions")


@require_POST
@signed_in
def end_other_sessions(request: HttpRequest, user: User) -> HttpResponse:
    sessions.end_others(user, request.session.session_key or "")
    messages.success(request, "You are signed out everywhere else.")
    return back_to("sessions")


def _page(request: HttpRequest, user: User, *, name_form: Form | None = None) -> HttpResponse:
    places = sessions.places(user, request.session.session_key or "")
    working = selectors.working_keys(user)
    context = {
        "name_form": name_form or NameForm(initial={"name": user.name}),
        "keys": working,
        "ended_keys": selectors.ended_keys(user),
        "max_keys": keys.MAX_ACTIVE_KEYS,
        "may_make_keys": sum(not key.is_replaced for key in working) < keys.MAX_ACTIVE_KEYS,
        "places": places,
        "others": any(not place.current for place in places),
        "verified": EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists(),
        "changing_to": EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).first(),
        "connected": SocialAccount.objects.filter(user=user).exists() if settings.OIDC_ISSUER else False,
    }
    status = HTTPStatus.BAD_REQUEST if name_form else HTTPStatus.OK
    return render(request, "accounts/account.html", context, status=status)
