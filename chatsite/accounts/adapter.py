"""How sign-up and sign-in (django-allauth) make accounts of ours."""

from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal.httpkit import clean_client_ip
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.utils import build_absolute_uri
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.http import url_has_allowed_host_and_scheme

from chatsite import mailing
from chatsite.accounts import invitations, known_browsers, lockout, services, sessions
from chatsite.accounts.errors import MailNotSent, ProviderFailed
from chatsite.accounts.models import User
from chatsite.accounts.protocol import Actor, Via
from chatsite.error_responses import handler400
from chatsite.text_checks import clean_line

UNKNOWN_ADDRESS = "0.0.0.0"  # of a client that reaches the server by a socket file, say
log = structlog.stdlib.get_logger(__name__)
_warned: set[str] = set()


class AccountAdapter(DefaultAccountAdapter):
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "account_inactive": "This account is disabled. Ask whoever runs this site.",
        "duplicate_email": "This is the address that the account has.",
        "email_password_mismatch": "The email address or the password is not right.",
        "enter_current_password": "That is not your current password.",
        "incorrect_code": "That is not the code.",
        "incorrect_password": "That is not your password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return bool(settings.SIGNUP_OPEN)

    def save_user(self, request: HttpRequest, user: Any, form: Any, commit: bool = True) -> Any:
        user.name = form.cleaned_data.get("name") or user.name
        saved = super().save_user(request, user, form, commit)
        if commit:
            services.personal_organization(saved)
            if token := form.cleaned_data.get("invitation"):
                invitations.note_sign_up(token, saved)
        return saved

    def set_password(self, user: Any, password: str) -> None:
        """Ends every session but the one that allauth renews: each holds a hash of the password."""
        super().set_password(user, password)
        sessions.announce(user.pk)

    def logout(self, request: HttpRequest) -> None:
        user, key = request.user, request.session.session_key
        super().logout(request)
        if key and isinstance(user, User):
            sessions.forget(key)
            sessions.announce(user.pk)

    def confirm_email(self, request: HttpRequest, email_address: Any) -> bool:
        """False when another account, verified or not, has the address."""
        if User.objects.filter(email=email_address.email).exclude(pk=email_address.user_id).exists():
            template = "account/messages/email_confirmation_failed.txt"
            self.add_message(request, messages.ERROR, template, {"email": email_address.email})
            return False
        with transaction.atomic():
            confirmed = bool(super().confirm_email(request, email_address))
        if confirmed:
            self._join(request, email_address.user)
        return confirmed

    def _join(self, request: HttpRequest, user: User) -> None:
        by = Actor(user.pk, Via.PAGE, self.get_client_ip(request))
        for place in invitations.join_after_sign_up(user, by):
            messages.success(request, f"You have joined {place.organization.name}.")

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        words = {"reauthenticate": "Use your password", "reauthenticate_by_code": "Send me a code by mail"}
        return [{**way, "description": words[way["id"]]} for way in super().get_reauthentication_methods(user)]

    # Guessing

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """In place of allauth's, which counts by account alone. What it took is given back if the password is right."""
        counts = self._counts(request, str(credentials.get("email", "")).lower())
        self._login_failed_rl_usage = lockout.take(request, counts)
        if self._login_failed_rl_usage is None:
            log.warning("sign-in locked", client=self.get_client_ip(request))
            raise ImmediateHttpResponse(lockout.locked_page(request, counts))

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        log.info("sign-in failed", client=self.get_client_ip(request))

    @staticmethod
    def _counts(request: HttpRequest, email: str) -> list[lockout.Count]:
        user = getattr(request, "user", None)
        if isinstance(user, User) and user.email == email:
            return lockout.of_user(user.pk)
        return lockout.of_address(request, email)

    def _delete_login_attempts_cached_email(self, request: HttpRequest, **credentials: Any) -> None:
        """After a password was reset."""
        lockout.unlock(str(credentials["email"]).lower())

    def post_login(self, request: HttpRequest, user: Any, **how: Any) -> HttpResponse:
        response: HttpResponse = super().post_login(request, user, **how)
        known_browsers.remember(request, response, user.email)
        return response

    def get_client_ip(self, request: HttpRequest) -> str:
        """The client as the trusted proxies name it; where they do not, who connected. Both are in logs and limits."""
        try:
            return str(super().get_client_ip(request))
        except (ImproperlyConfigured, PermissionDenied):
            if "proxies" not in _warned:
                _warned.add("proxies")
                log.warning("X-Forwarded-For does not fit TRUSTED_PROXIES", proxies=settings.TRUSTED_PROXIES)
            return clean_client_ip(request.META.get("REMOTE_ADDR") or "") or UNKNOWN_ADDRESS

    def is_safe_url(self, url: str) -> bool:
        """Whether `next` stays on the host that was asked."""
        request = self.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    # Mail

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Raises MailNotSent; also where its links would have the host of the request, which strangers can choose."""
        if not settings.SITE_URL and mailing.is_sent():
            log.error("mail not sent", mail=template_prefix, error="SITE_URL is missing")
            raise MailNotSent
        links = {name: self._site_url(link) for name, link in context.items() if name.endswith("_url")}
        about = {"site_name": settings.SITE_NAME, "signup_open": settings.SIGNUP_OPEN, "site_url": self._site_url()}
        try:
            super().send_mail(template_prefix, email, {**context, **links, **about})
        except OSError as error:  # which SMTP's own errors are too
            log.error("mail not sent", mail=template_prefix, error=str(error))
            raise MailNotSent from error

    def _site_url(self, link: str = "/") -> str:
        """A link of a mail, with the address that the operator gave the site; in printed mails else with that asked."""
        if settings.SITE_URL:
            return urljoin(settings.SITE_URL, urlunsplit(urlsplit(link)._replace(scheme="", netloc="")))
        return str(build_absolute_uri(self.request, link))

    def send_notification_mail(self, template_prefix: str, user: Any, *args: Any, **kwargs: Any) -> None:
        try:
            super().send_notification_mail(template_prefix, user, *args, **kwargs)
        except MailNotSent:  # logged; what it tells of is done, and is not undone for want of a mail
            return


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    """Who the identity provider lets in has an account, whether or not sign-up is open."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: Any) -> Any:
        user = super().populate_user(request, sociallogin, data)
        parts = [data.get("first_name"), data.get("last_name")]
        name = str(data.get("name") or " ".join(part for part in parts if isinstance(part, str)))
        user.name = clean_line(clean_line(name).strip()[: User._meta.get_field("name").max_length])
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        saved = super().save_user(request, sociallogin, form)
        services.personal_organization(saved)
        return saved

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """The ID token and the userinfo answer have to be about the same person."""
        told = sociallogin.account.extra_data
        subjects = {str(told[part].get("sub")) for part in ("id_token", "userinfo") if told.get(part)}
        if len(subjects) > 1:
            log.warning("the identity provider speaks of two people")
            raise ImmediateHttpResponse(handler400(request, ProviderFailed()))

    def authenticate_by_email(self, sociallogin: Any) -> tuple[Any, str] | None:
        """The account with an address that the provider has verified; never by one that it only passes on."""
        for address in sociallogin.email_addresses:
            if address.verified and (user := services.claim_address(address.email)):
                return user, address.email
        return None
