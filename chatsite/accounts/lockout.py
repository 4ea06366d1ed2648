"""Too many attempts: how long to wait, and the page that says so.

The counts are allauth's, in the cache: failed sign-ins by account and by client, the rest by client or user. They fail
closed: while the cache is away nobody can sign in, and is told so (503).
"""

import math
import time
from http import HTTPStatus
from typing import Final

from allauth.core.internal import ratelimit
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

APP: Final = "allauth.account"
ACTION: Final = "login_failed"
WAIT_SECONDS: Final = 60.0  # all other limits are by the minute


def seconds_locked(request: HttpRequest, key: str) -> float:
    """Until a sign-in for this account from this client is looked at again."""
    waits = [0.0]
    for rate in ratelimit.get_rates(app=APP, action=ACTION):
        place = ratelimit.get_cache_key(request, app=APP, action=ACTION, rate=rate, key=key)
        attempts: list[float] = cache.get(place, [])  # the newest first
        if len(attempts) >= rate.amount:
            waits.append(attempts[rate.amount - 1] + rate.duration - time.time())
    return max(waits)


def locked_page(request: HttpRequest, key: str) -> HttpResponse:
    return _page(request, seconds_locked(request, key), signing_in=True)


def handler429(request: HttpRequest) -> HttpResponse:
    """For the root URLconf, where allauth looks for it."""
    return _page(request, WAIT_SECONDS, signing_in=False)


def _page(request: HttpRequest, seconds: float, *, signing_in: bool) -> HttpResponse:
    seconds = max(1, math.ceil(seconds))
    context = {"wait": in_words(seconds), "signing_in": signing_in}
    response = render(request, "account/too_many.html", context, status=HTTPStatus.TOO_MANY_REQUESTS)
    response["Retry-After"] = str(seconds)
    return response


def in_words(seconds: int) -> str:
    """`40 seconds`, `1 minute`, `5 minutes`: rounded up."""
    if seconds < WAIT_SECONDS:
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} minute{'' if minutes == 1 else 's'}"
