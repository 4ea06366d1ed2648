"""Who is calling: a Bearer key, which ignores cookies, or a browser's session cookie."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.http import parse_cookie
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from chatsite import scopes
from chatsite.accounts import audit, keys, selectors, services, sessions
from chatsite.accounts.errors import KeyExpired, KeyPaused
from chatsite.accounts.models import Membership, User
from chatsite.accounts.protocol import Principal
from chatsite.csrf import require_csrf
from chatsite.database import run_db
from chatsite.errors import NotAuthenticated

KEY_FORM = re.compile(r"sk-[A-Za-z0-9_-]{43}\Z")
NOTE_USE_AFTER = timedelta(minutes=1)
INVALID_KEY = "This API key is not valid."


@dataclass(frozen=True)
class Authenticated:
    """A caller, and whether only a cookie says so: then unsafe methods need the CSRF token as well."""

    principal: Principal
    by_cookie: bool


async def authenticate_scope(scope: Mapping[str, Any]) -> Authenticated:
    """The caller of an ASGI `http` or `websocket` scope. A known key costs no query for 5 s.

    Raises NotAuthenticated.
    """
    authorization = cookies = ""
    for name, value in scope["headers"]:
        if name == b"authorization":
            authorization = value.decode("latin-1")
        elif name == b"cookie":
            cookies = f"{cookies}; {value.decode('latin-1')}" if cookies else value.decode("latin-1")
    key = bearer_key(authorization)
    if key is not None:
        digest = _digest(key)
        holder = keys.known_keys.get(digest)
        if holder is None:
            holder = await run_db(_find_holder, digest)
        return Authenticated(_unexpired(holder).principal, by_cookie=False)
    session_key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME) if cookies else None
    if not session_key:
        raise NotAuthenticated
    return Authenticated(await run_db(_session_principal, session_key), by_cookie=True)


def bearer_key(authorization: str) -> str | None:
    """The key in an Authorization header; None when the header is of another scheme or missing."""
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else None


def _digest(key: str) -> str:
    if not KEY_FORM.match(key):
        raise NotAuthenticated(INVALID_KEY)
    return keys.digest_of(key)


def _find_holder(digest: str) -> selectors.KeyHolder:
    holder = selectors.key_holder(digest)
    if holder is None:
        raise NotAuthenticated(INVALID_KEY)
    used = holder.key.last_used_at
    if holder.key.is_working and (used is None or timezone.now() - used > NOTE_USE_AFTER):
        keys.note_key_used(holder.key)
    keys.known_keys.put(digest, holder)
    return holder


def _unexpired(holder: selectors.KeyHolder) -> selectors.KeyHolder:
    """Asked at each use: a key that is remembered may have ended since. Raises KeyExpired, KeyPaused."""
    if holder.key.paused_at is not None:
        raise KeyPaused
    end = holder.key.expires_at
    if end is not None and end <= timezone.now():
        how = "was replaced by another, and ended" if holder.key.is_replaced else "expired"
        raise KeyExpired(f"This API key {how} at {audit.in_utc(end)}.")
    return holder


def _session_principal(session_key: str) -> Principal:
    found = selectors.session_user(session_key)
    if found is None:
        raise NotAuthenticated
    sessions.note_seen(session_key)
    return user_principal(*found)


def user_principal(user: User, session: SessionBase) -> Principal:
    """A signed-in user, acting for the organization in which this session works."""
    return principal_at(services.working_place(user, session))


def principal_at(place: Membership) -> Principal:
    """A signed-in user, acting for that organization."""
    limits = selectors.limits_of(place)
    return Principal(place.user_id, place.organization_id, scopes=scopes.ALL, member_limits=limits)


class KeyOrSession(BaseAuthentication):
    """For API views: `request.user` is the User, `request.auth` the Principal."""

    def authenticate(self, request: Request) -> tuple[User, Principal] | None:
        key = bearer_key(request.META.get("HTTP_AUTHORIZATION", ""))
        if key is not None:
            digest = _digest(key)
            holder = _unexpired(keys.known_keys.get(digest) or _find_holder(digest))
            return copy.copy(holder.user), holder.principal  # a copy: the holder is shared between requests
        user = getattr(request._request, "user", None)
        if not isinstance(user, User) or not user.is_active:
            return None
        require_csrf(request._request)
        return user, user_principal(user, request._request.session)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class KeyOrSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document describes it."""

    target_class = "chatsite.accounts.authentication.KeyOrSession"
    name = ["apiKey", "session"]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key."},
            {
                "type": "apiKey",
                "in": "cookie",
                "name": settings.SESSION_COOKIE_NAME,
                "description": "A browser session. Unsafe methods need `X-CSRFToken` and a same-origin `Origin` too.",
            },
        ]
