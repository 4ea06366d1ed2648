"""Too many attempts: what is counted, how long to wait, and the page that says so.

A guesser may come from anywhere, so failed sign-ins are counted for each account. Were that all, a stranger who fails
on purpose would keep its owner out. So strangers are counted by network first, and one network has spent its share well
before all of them have spent theirs; browsers that have been signed in to the account (`known_browsers`) are counted
apart.

The counts are allauth's, in the cache. They fail closed: while the cache is away nobody can sign in, and is told so
(503).
"""

import hashlib
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from allauth.core.internal import ratelimit
from allauth.core.internal.ratelimit import Rate, RateLimitUsage
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from chatsite.accounts import known_browsers

APP: Final = "allauth.account"
# Of ACCOUNT_RATE_LIMITS. A place is a network, or a browser that has been signed in to the account.
CLIENT, PLACE, PLACE_LONGER = "login_failed", "login_failed_place", "login_failed_place_longer"
ACCOUNT = "login_failed_account"
LONGEST: Final = 1800  # seconds: of these
WAIT_SECONDS: Final = 60.0  # all other limits are by the minute


@dataclass(frozen=True)
class Count:
    """One of allauth's counts: a kind of limit, and of whom."""

    action: str
    key: str = ""

    def places(self, request: HttpRequest) -> list[tuple[Rate, str]]:
        """Each rate of it, and where in the cache it is counted."""
        rates = ratelimit.get_rates(app=APP, action=self.action)
        make = ratelimit.get_cache_key
        return [(rate, make(request, app=APP, action=self.action, rate=rate, key=self.key)) for rate in rates]


def of_address(request: HttpRequest, email: str) -> list[Count]:
    """What counts a sign-in for the address, which is in lower case."""
    browser = known_browsers.known(request, email)
    account = f"{email} {cache.get(_unlocked(email), '')}"
    place = f"{account} {f'browser {browser}' if browser else f'network {ratelimit.get_ip(request)}'}"
    everybody = f"{account} {'known' if browser else 'strangers'}"
    return [Count(CLIENT), Count(PLACE, place), Count(PLACE_LONGER, place), Count(ACCOUNT, everybody)]


def of_user(user_id: object) -> list[Count]:
    """What counts those who are signed in and show once more that it is them: others cannot keep them from it."""
    return [Count(CLIENT), Count(PLACE, f"user:{user_id}")]


def take(request: HttpRequest, counts: Sequence[Count]) -> RateLimitUsage | None:
    """Counts an attempt. None when there were too many: it then counts for the client alone, which comes first."""
    taken: list[RateLimitUsage] = []
    for count in counts:
        usage = ratelimit.consume(request, app=APP, action=count.action, key=count.key)
        if usage is None:
            for each in taken[1:]:
                each.rollback()
            return None
        taken.append(usage)
    return RateLimitUsage([single for each in taken for single in each.usage])


def unlock(email: str) -> None:
    """For who has shown that the address is theirs: from now on its sign-ins are counted anew, from every network."""
    cache.set(_unlocked(email), secrets.token_hex(8), LONGEST)


def _unlocked(email: str) -> str:
    return f"unlocked:{hashlib.sha256(email.encode()).hexdigest()}"


def seconds_locked(request: HttpRequest, counts: Sequence[Count]) -> float:
    """Until a sign-in that counts so is looked at again."""
    waits = [0.0]
    for count in counts:
        for rate, place in count.places(request):
            attempts: list[float] = cache.get(place, [])  # the newest first
            if len(attempts) >= rate.amount:
                waits.append(attempts[rate.amount - 1] + rate.duration - time.time())
    return max(waits)


def locked_page(request: HttpRequest, counts: Sequence[Count]) -> HttpResponse:
    return _page(request, seconds_locked(request, counts), signing_in=True)


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
