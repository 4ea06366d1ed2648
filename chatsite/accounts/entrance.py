"""allauth's pages where ours differ; the rest of `/accounts/` is allauth's own.

Signing up and changing a password are transactions: they are done as a whole, or, when the mail cannot be sent, not at
all, and the user's other pages are told only when it is done.
"""

from collections.abc import Callable
from typing import Any

import structlog
from allauth.account.internal.flows.reauthentication import is_reauthentication_required
from allauth.account.views import PasswordChangeView, PasswordResetFromKeyView, PasswordSetView, SignupView
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect import views as openid
from django.db import DataError, IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import path, re_path
from django.views.decorators.cache import never_cache
from django.views.generic import RedirectView

from chatsite.accounts import invitations
from chatsite.accounts.errors import InvitationEnded, ProviderFailed
from chatsite.error_responses import handler400

# An identity provider that is away (OSError), or answers with something else than it should.
PROVIDER_FAULTS = (OSError, OAuth2Error, LookupError, TypeError, ValueError, AttributeError, DataError, IntegrityError)
log = structlog.stdlib.get_logger(__name__)


class InvitedSignupView(SignupView):
    """`?invitation=` is the token of an invitation: its address is filled in, and the form takes it along."""

    def get_initial(self) -> dict[str, Any]:
        initial: dict[str, Any] = super().get_initial()
        token = self.request.GET.get("invitation", "")
        try:
            invitation = invitations.find(token) if token else None
        except InvitationEnded:
            return initial
        return {**initial, "email": invitation.email, "invitation": token} if invitation else initial


class SetPasswordView(PasswordSetView):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A form that has to wait for another sign-in would be kept in the session, its new password with it."""
        if request.method == "POST" and is_reauthentication_required(request, app="allauth.account"):
            return redirect("account_set_password")
        return super().dispatch(request, *args, **kwargs)


@never_cache
def oidc_login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Leaves for the provider by a page of its own: a form may only be answered by this site (form-action)."""
    response = _or_failed(openid.login, request, provider_id)
    if isinstance(response, HttpResponseRedirect) and not response.url.startswith("/"):
        return render(request, "socialaccount/leave.html", {"address": response.url})
    return response


def oidc_callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _or_failed(openid.callback, request, provider_id)


def _or_failed(view: Callable[..., HttpResponse], request: HttpRequest, provider_id: str) -> HttpResponse:
    try:
        with transaction.atomic():
            return view(request, provider_id)
    except PROVIDER_FAULTS as error:
        log.warning("the identity provider failed", exc_info=error)
        return handler400(request, ProviderFailed())


urlpatterns = [
    path("signup/", transaction.atomic(InvitedSignupView.as_view()), name="account_signup"),
    path("password/change/", transaction.atomic(PasswordChangeView.as_view()), name="account_change_password"),
    path("password/set/", transaction.atomic(SetPasswordView.as_view()), name="account_set_password"),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        transaction.atomic(PasswordResetFromKeyView.as_view()),
        name="account_reset_password_from_key",
    ),
    path("oidc/<str:provider_id>/login/", oidc_login, name="openid_connect_login"),
    path("oidc/<str:provider_id>/login/callback/", oidc_callback, name="openid_connect_callback"),
    path("sessions/", RedirectView.as_view(pattern_name="account"), name="usersessions_list"),
]
