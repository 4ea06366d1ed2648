"""The pages of API keys: a new one, what one may do and its history, replacing and revoking it.

The text of a new key is the answer to its form, and nothing else ever holds it. Loading that answer again sends the
same form, which makes no second key.
"""

from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from chatsite.accounts import audit, keys, selectors, services
from chatsite.accounts.errors import KeyEnded, KeyExists, KeyReplaced, TooManyKeys
from chatsite.accounts.key_forms import ChangeKeyForm, NewKeyForm, RotateKeyForm
from chatsite.accounts.models import ApiKey, User
from chatsite.accounts.pages import back_to, signed_in
from chatsite.accounts.protocol import Via
from chatsite.errors import AppError, NotFound
from chatsite.ids import new_id, parse_id

FORM_SECONDS: Final = 24 * 3600  # a form that makes a key may lie open so long
TOO_OLD: Final = "This form was too old. Send it again."
asks_or_does = require_http_methods(["GET", "HEAD", "POST"])


@asks_or_does
@signed_in
@sensitive_variables("text")
def new_key(request: HttpRequest, user: User) -> HttpResponse:
    form = NewKeyForm(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return _form_page(request, user, "accounts/key_new.html", form)
    key_id = _read_form_id(user, request.POST.get("form", ""))
    if key_id is None or not form.is_valid():
        return _form_again(request, user, "accounts/key_new.html", form, too_old=key_id is None)
    organization = services.working_place(user, request.session).organization
    by = audit.actor_of(request, Via.PAGE)
    try:
        key, text = keys.issue_api_key(user, organization, form.terms(), key_id, by)
    except KeyExists as error:
        return _made_before(request, user, key_id, error)
    except TooManyKeys as error:
        messages.error(request, error.message)
        return back_to("keys")
    return render(request, "accounts/key_created.html", {"key": key, "text": text})


@asks_or_does
@signed_in
def one_key(request: HttpRequest, user: User, key: str) -> HttpResponse:
    """GET shows it, POST changes its terms."""
    found = _own(user, key)
    open_to_change = found.is_working and not found.is_replaced
    form = ChangeKeyForm(request.POST if request.method == "POST" else None, key=found) if open_to_change else None
    if request.method == "POST":
        if form is None:
            raise KeyReplaced if found.is_replaced else KeyEnded
        if form.is_valid():
            keys.change_api_key(user, found.pk, form.terms(found), audit.actor_of(request, Via.PAGE))
            messages.success(request, "The key is saved.")
            return redirect("account_key", key=found.public_id)
    history = audit.lines(selectors.events_of(found), user.pk)
    return _form_page(request, user, "accounts/key.html", form, key=found, history=history)


@asks_or_does
@signed_in
@sensitive_variables("text")
def rotate_key(request: HttpRequest, user: User, key: str) -> HttpResponse:
    """GET asks, POST does and shows the new key."""
    old = _own(user, key)
    new = _read_form_id(user, request.POST.get("form", ""))
    if new is not None and selectors.own_key(user, new):
        return _made_before(request, user, new, KeyExists())
    if old.is_replaced or not old.is_working:
        return _not_rotated(request, old, KeyReplaced() if old.is_replaced else KeyEnded())
    form = RotateKeyForm(request.POST if request.method == "POST" else None, key=old)
    if request.method != "POST":
        return _form_page(request, user, "accounts/key_rotate.html", form, key=old)
    if new is None or not form.is_valid():
        return _form_again(request, user, "accounts/key_rotate.html", form, too_old=new is None, key=old)
    by = audit.actor_of(request, Via.PAGE)
    try:
        made, text = keys.rotate_api_key(user, old.pk, new, form.pause(), form.end(), by)
    except KeyExists as error:
        return _made_before(request, user, new, error)
    except (KeyReplaced, KeyEnded, TooManyKeys) as error:
        return _not_rotated(request, old, error)
    old.refresh_from_db()
    return render(request, "accounts/key_created.html", {"key": made, "text": text, "old": old})


@asks_or_does
@signed_in
def revoke_key(request: HttpRequest, user: User, key: str) -> HttpResponse:
    """GET asks, POST does."""
    found = _own(user, key)
    if request.method != "POST":
        return render(request, "accounts/key_revoke.html", {"key": found})
    keys.revoke_own_key(user, found.pk, audit.actor_of(request, Via.PAGE))
    messages.success(request, f"The key “{found.name}” is revoked.")
    return back_to("keys")


def _own(user: User, key: str) -> ApiKey:
    """Raises NotFound."""
    key_id = parse_id("key", key)
    found = selectors.own_key(user, key_id) if key_id else None
    if found is None:
        raise NotFound
    return found


def _made_before(request: HttpRequest, user: User, key_id: UUID, error: KeyExists) -> HttpResponse:
    """To the key that the form made when it was sent first; it can be rotated there."""
    messages.error(request, error.message)
    made = selectors.own_key(user, key_id)
    return redirect("account_key", key=made.public_id) if made else back_to("keys")


def _not_rotated(request: HttpRequest, old: ApiKey, error: AppError) -> HttpResponse:
    messages.error(request, error.message)
    return redirect("account_key", key=old.public_id)


def _form_again(
    request: HttpRequest, user: User, template: str, form: Any, *, too_old: bool, **more: Any
) -> HttpResponse:
    """With what was filled in, and what is wrong with it."""
    if too_old:
        messages.error(request, TOO_OLD)
    return _form_page(request, user, template, form, status=HTTPStatus.BAD_REQUEST, **more)


def _form_page(
    request: HttpRequest, user: User, template: str, form: Any, status: int = HTTPStatus.OK, **more: Any
) -> HttpResponse:
    context = {"form": form, "form_id": _form_id(user), **more}
    wrong = form is not None and form.is_bound and not form.is_valid()
    return render(request, template, context, status=HTTPStatus.BAD_REQUEST if wrong else status)


def _form_id(user: User) -> str:
    """The id of the key that the form will make, signed for this user."""
    return signing.dumps(str(new_id()), salt=f"api key of {user.pk}")


def _read_form_id(user: User, text: str) -> UUID | None:
    try:
        return UUID(signing.loads(text, salt=f"api key of {user.pk}", max_age=FORM_SECONDS))
    except signing.BadSignature:
        return None
