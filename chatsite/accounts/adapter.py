"""How sign-up and sign-in (django-allauth) make accounts of ours."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.http import HttpRequest

from chatsite.accounts import services


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return bool(settings.SIGNUP_OPEN)

    def save_user(self, request: HttpRequest, user: Any, form: Any, commit: bool = True) -> Any:
        saved = super().save_user(request, user, form, commit)
        if commit:
            services.personal_organization(saved)
        return saved


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    """Who the identity provider lets in has an account, whether or not sign-up is open."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        saved = super().save_user(request, sociallogin, form)
        services.personal_organization(saved)
        return saved
