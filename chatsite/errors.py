"""The error tree. A class's docstring is its default message; `error_responses` alone turns it into an answer.

AppError
├── NotAuthenticated       401 not_authenticated
├── PermissionDenied       403 permission_denied
│   └── InsufficientScope  403 insufficient_scope
├── NotFound               404 not_found
├── MethodNotAllowed       405 method_not_allowed
├── Conflict               409 conflict
│   └── IdempotencyInFlight 409 idempotency_in_flight
├── InvalidInput           400 invalid_input
│   ├── TooLarge           413 too_large
│   ├── UnsupportedMedia   415 unsupported_media_type
│   └── IdempotencyMismatch 422 idempotency_mismatch
├── RateLimited            429 rate_limited
└── Unavailable            503 unavailable

Apps derive their own errors from these, in their `errors.py`.
"""

from collections.abc import Mapping
from typing import Any, Literal


class AppError(Exception):
    """Something went wrong on our side."""

    code = "internal_error"
    status = 500
    should_retry: bool | None = None  # False tells clients that a retry cannot help
    headers: Mapping[str, str] = {}  # what the answer carries besides, such as the state of a limit
    members: Mapping[str, Any] = {}  # what its body says besides, in JSON

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, param: str | None = None
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.retry_after = retry_after  # seconds
        self.param = param  # the field that is wrong
        super().__init__(self.message)


class NotAuthenticated(AppError):
    """Sign in, or send an API key as `Authorization: Bearer <key>`."""

    code = "not_authenticated"
    status = 401


class PermissionDenied(AppError):
    """You may not do this."""

    code = "permission_denied"
    status = 403


class InsufficientScope(PermissionDenied):
    """This API key may not be used for that."""

    code = "insufficient_scope"


class NotFound(AppError):
    """There is no such object, or it is not yours."""

    code = "not_found"
    status = 404


class MethodNotAllowed(AppError):
    """This address does not take that method."""

    code = "method_not_allowed"
    status = 405


class Conflict(AppError):
    """The object has changed meanwhile. Reload it and try again."""

    code = "conflict"
    status = 409


class IdempotencyInFlight(Conflict):
    """A call with this Idempotency-Key is still running."""

    code = "idempotency_in_flight"


class InvalidInput(AppError):
    """The input is not valid."""

    code = "invalid_input"
    status = 400


class TooLarge(InvalidInput):
    """The body is too large."""

    code = "too_large"
    status = 413


class UnsupportedMedia(InvalidInput):
    """Send the body as application/json."""

    code = "unsupported_media_type"
    status = 415


class IdempotencyMismatch(InvalidInput):
    """This Idempotency-Key was used before with another body."""

    code = "idempotency_mismatch"
    status = 422


class RateLimited(AppError):
    """Too many requests. Wait, then try again."""

    code = "rate_limited"
    status = 429
    of: Literal["requests", "tokens"] = "requests"  # what there were too many of


class Unavailable(AppError):
    """The service cannot answer now. Try again shortly."""

    code = "unavailable"
    status = 503
