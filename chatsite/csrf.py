"""Protection of cookie sessions against other sites, for routes that Django's middleware does not guard."""

from typing import Any

from django.http import HttpRequest
from django.middleware.csrf import CsrfViewMiddleware

from chatsite.errors import PermissionDenied

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class _Check(CsrfViewMiddleware):
    """Django's own checks, told to give the reason instead of an answer."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


def require_csrf(request: HttpRequest) -> None:
    """On unsafe methods: a same-origin (or trusted) `Origin`, and the token of the CSRF cookie in `X-CSRFToken`.

    Raises PermissionDenied.
    """
    if request.method in SAFE_METHODS or getattr(request, "_dont_enforce_csrf_checks", False):
        return
    if "HTTP_ORIGIN" not in request.META:
        raise PermissionDenied("A session needs an Origin header on this method. Programs send an API key instead.")
    check = _Check(lambda _: None)  # type: ignore[arg-type, return-value]
    check.process_request(request)
    reason = check.process_view(request, require_csrf, (), {})  # type: ignore[arg-type] # any function without csrf_exempt
    if reason:
        raise PermissionDenied(f"The CSRF check failed: {reason}")
