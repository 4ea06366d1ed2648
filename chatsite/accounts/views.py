"""The account page. Everything it sends is a plain form, answered by a redirect back to it.

But one: the text of a new key is the answer to its form, and nothing else ever holds it. Loading that answer again
sends the same form, which makes no second key.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core import signing
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_cache_control
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chatsite.accounts import selectors, services, sessions
from chatsite.accounts.errors import KeyExists, TooManyKeys
from chatsite.accounts.forms import KeyForm, NameForm
from chatsite.accounts.models import User
from chatsite.error_responses import handler400
from chatsite.errors import AppError, NotFound
from chatsite.ids import new_id, parse_id

KEY_FORM_IDS: Final = "id_key_%s"  # two forms of the page have a name
FORM_SECONDS: Final = 24 * 3600  # a key's form may lie open so long
View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Sends others to sign in; keeps the page out of every cache; an error of ours becomes a page."""

    @login_required
    def guarded(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, request.user, **kwargs)
        except AppError as error:
            response = handler400(request, error)
        patch_cache_control(response, no_store=True, private=True)
        return response

    return guarded  # type: ignore[no-any-return]


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
    return _back("profile")


@require_POST
@signed_in
def end_session(request: HttpRequest, user: User, session_id: int) -> HttpResponse:
    """Of somebody else, or gone already: the same answer."""
    if not sessions.end(user, session_id, request.session.session_key or ""):
        raise NotFound("That session has ended, or is not yours.")
    messages.success(request, "That session is signed out.")
    return _back("sessions")


@require_POST
@signed_in
def end_other_sessions(request: HttpRequest, user: User) -> HttpResponse:
    sessions.end_others(user, request.session.session_key or "")
    messages.success(request, "You are signed out everywhere else.")
    return _back("sessions")


@require_POST
@signed_in
@sensitive_variables("text")
def create_key(request: HttpRequest, user: User) -> HttpResponse:
    form = KeyForm(request.POST, auto_id=KEY_FORM_IDS)
    key_id = _read_form_id(user, request.POST.get("form", ""))
    if key_id is None:
        messages.error(request, "This form was too old. Send it again.")
        return _back("keys")
    if not form.is_valid():
        return _page(request, user, key_form=form)
    try:
        key, text = services.issue_api_key(user, form.cleaned_data["name"], key_id)
    except (KeyExists, TooManyKeys) as error:
        messages.error(request, error.message)
        return _back("keys")
    return render(request, "accounts/key_created.html", {"key": key, "text": text})


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def revoke_key(request: HttpRequest, user: User, key: str) -> HttpResponse:
    """GET asks, POST does."""
    key_id = parse_id("key", key)
    found = selectors.own_key(user, key_id) if key_id else None
    if found is None:
        raise NotFound
    if request.method != "POST":
        return render(request, "accounts/key_revoke.html", {"key": found})
    services.revoke_own_key(user, found.pk)
    messages.success(request, f"The key “{found.name}” is revoked.")
    return _back("keys")


def _page(
    request: HttpRequest, user: User, *, name_form: Form | None = None, key_form: Form | None = None
) -> HttpResponse:
    places = sessions.places(user, request.session.session_key or "")
    context = {
        "name_form": name_form or NameForm(initial={"name": user.name}),
        "key_form": key_form or KeyForm(auto_id=KEY_FORM_IDS),
        "key_form_id": _form_id(user),
        "keys": selectors.active_keys(user),
        "max_keys": services.MAX_ACTIVE_KEYS,
        "places": places,
        "others": any(not place.current for place in places),
        "verified": EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists(),
        "changing_to": EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).first(),
        "connected": SocialAccount.objects.filter(user=user).exists() if settings.OIDC_ISSUER else False,
    }
    wrong = name_form or key_form
    return render(request, "accounts/account.html", context, status=HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.OK)


def _back(section: str) -> HttpResponse:
    return redirect(f"{reverse('account')}#{section}")


def _form_id(user: User) -> str:
    """The id of the key that the form will make, signed for this user."""
    return signing.dumps(str(new_id()), salt=f"api key of {user.pk}")


def _read_form_id(user: User, text: str) -> UUID | None:
    try:
        return UUID(signing.loads(text, salt=f"api key of {user.pk}", max_age=FORM_SECONDS))
    except signing.BadSignature:
        return None
