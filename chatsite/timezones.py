"""Times as the clock of the person shows them: their browser says its zone in a cookie (static/js/theme.js)."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, parse_cookie
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from chatsite.error_responses import API_PREFIX

COOKIE = "timezone"
Handler = Callable[[HttpRequest], Any]


@sync_and_async_middleware
def local_time(get_response: Handler) -> Handler:
    """Middleware: what a page says about time is in the zone of whoever asks; in UTC where it is not known.

    The API says UTC to everybody.
    """
    if iscoroutinefunction(get_response):
        answer_later = cast(Callable[[HttpRequest], Awaitable[HttpResponseBase]], get_response)

        async def serve_async(request: HttpRequest) -> HttpResponseBase:
            with in_zone_of({} if request.path.startswith(API_PREFIX) else request.COOKIES):
                return await answer_later(request)

        return serve_async

    def serve(request: HttpRequest) -> HttpResponseBase:
        with in_zone_of({} if request.path.startswith(API_PREFIX) else request.COOKIES):
            return cast(HttpResponseBase, get_response(request))

    return serve


def in_zone_of(cookies: Mapping[str, str]) -> AbstractContextManager[None]:
    """Django's current time zone within the block, tasks that are started there included."""
    return timezone.override(_zone(unquote(cookies.get(COOKIE, ""))[:100]))


def cookies_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Of a WebSocket."""
    sent = [value.decode("latin-1") for name, value in scope.get("headers", []) if name == b"cookie"]
    return parse_cookie("; ".join(sent))


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ValueError, KeyError, OSError):  # no name of a zone: a path, a folder, a word
        return ZoneInfo("UTC")
