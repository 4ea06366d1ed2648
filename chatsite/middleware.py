"""What wraps every answer that Django gives: a request id, one access line, and a content security policy."""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control
from django.utils.decorators import sync_and_async_middleware

from chatsite import logs

Handler = Callable[[HttpRequest], Any]
Change = Callable[[HttpRequest, HttpResponseBase], HttpResponseBase]
POLICY_HEADER = "Content-Security-Policy"
# No inline script or style, no frames, nothing from elsewhere. A view that needs another policy sets the header itself.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; connect-src 'self'"
)
# The admin's theme evaluates expressions of its templates (Alpine) and sets style attributes from script (Select2);
# docs/decisions/0006-admin-theme.md says why that is bearable there. Inline script and style elements stay forbidden.
ADMIN = "admin"
ADMIN_POLICY = POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")


@sync_and_async_middleware
def request_id(get_response: Handler) -> Handler:
    """Takes or makes the request's id; puts it on the answer and on every log line."""
    if iscoroutinefunction(get_response):
        answer_later = cast(Callable[[HttpRequest], Awaitable[HttpResponseBase]], get_response)

        async def serve_async(request: HttpRequest) -> HttpResponseBase:
            started, identifier = _begin(request)
            return _finish(request, await answer_later(request), started, identifier)

        return serve_async

    def serve(request: HttpRequest) -> HttpResponseBase:
        started, identifier = _begin(request)
        return _finish(request, get_response(request), started, identifier)

    return serve


def _begin(request: HttpRequest) -> tuple[float, str]:
    identifier = logs.accept_request_id(request.headers.get("x-request-id"))
    logs.begin_request(identifier)
    return time.perf_counter(), identifier


def _finish(request: HttpRequest, response: HttpResponseBase, started: float, identifier: str) -> HttpResponseBase:
    response["x-request-id"] = identifier
    if response.status_code < HTTPStatus.BAD_REQUEST and request.path.startswith(settings.STATIC_URL):
        return response  # a page brings a dozen of these, and nobody looks for them
    match = request.resolver_match
    route = f"/{match.route}" if match else request.path
    logs.log_access(request.method or "", route, response.status_code, time.perf_counter() - started)
    return response


def on_each_answer(change: Change) -> Callable[[Handler], Handler]:
    """A middleware that does no more than to change what is answered."""

    @sync_and_async_middleware
    def middleware(get_response: Handler) -> Handler:
        if iscoroutinefunction(get_response):
            answer_later = cast(Callable[[HttpRequest], Awaitable[HttpResponseBase]], get_response)

            async def serve_async(request: HttpRequest) -> HttpResponseBase:
                return change(request, await answer_later(request))

            return serve_async

        def serve(request: HttpRequest) -> HttpResponseBase:
            return change(request, get_response(request))

        return serve

    return middleware


@on_each_answer
def content_security_policy(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Sets the policy on answers that have none of their own."""
    if not response.has_header(POLICY_HEADER):
        match = request.resolver_match
        in_admin = match is not None and ADMIN in match.namespaces
        response[POLICY_HEADER] = ADMIN_POLICY if in_admin else POLICY + _sockets(request)
    return response


PRIVATE_PATHS = ("/account/", "/accounts/", "/organization/")  # pages that show whose account it is, allauth's included


@on_each_answer
def private_pages(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Keeps pages of accounts out of every cache, the browser's own too."""
    if request.path_info.startswith(PRIVATE_PATHS):
        patch_cache_control(response, no_store=True, private=True)
    return response


def _sockets(request: HttpRequest) -> str:
    """This site's WebSockets: not every browser counts them as 'self'."""
    try:
        host = request.get_host()  # checked against ALLOWED_HOSTS
    except DisallowedHost:  # only the page that says so is served there
        return ""
    return f" ws://{host} wss://{host}"
