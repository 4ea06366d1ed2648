"""A cookie of a browser that has been signed in to an account.

It lets nobody in: it only tells a sign-in of the owner's from a stranger's, so that those who guess cannot use up the
owner's attempts (`lockout`). It holds a random name of the browser and, hashed with the site's key, the addresses
of the accounts that were last signed in there.
"""

from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.crypto import get_random_string, salted_hmac

COOKIE: Final = "known_browser"
PATH: Final = "/accounts/"  # where people sign in; nothing else sees it
SALT: Final = "chatsite.accounts.known_browsers"
SECONDS: Final = 365 * 86400
MOST: Final = 5  # accounts of one browser


def known(request: HttpRequest, email: str) -> str:
    """The name of the browser if it has been signed in to the account with this address within a year; else empty."""
    name, addresses = _read(request)
    return name if _hashed(email) in addresses else ""


def remember(request: HttpRequest, response: HttpResponseBase, email: str) -> None:
    """Once it is signed in."""
    name, addresses = _read(request)
    kept = [_hashed(email), *(each for each in addresses if each != _hashed(email))][:MOST]
    response.set_cookie(
        COOKIE,
        signing.dumps([name or get_random_string(16), kept], salt=SALT),
        max_age=SECONDS,
        path=PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _read(request: HttpRequest) -> tuple[str, list[str]]:
    """Of a browser without the cookie, or with one that this site has not made: nothing."""
    try:
        found: Any = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        return "", []
    name, addresses = found
    return name, addresses


def _hashed(email: str) -> str:
    return salted_hmac(SALT, email.lower(), algorithm="sha256").hexdigest()[:32]
