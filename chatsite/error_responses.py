"""The only place where an error becomes an answer: HTTP, WebSocket close code, or event of a stream."""

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import django.db
import redis.exceptions
import structlog
from django.core import exceptions as django_errors
from django.http import Http404, HttpRequest, HttpResponse
from django.template import loader
from django.utils.http import escape_leading_slashes
from rest_framework import exceptions as rest_errors
from rest_framework.views import set_rollback

from chatsite import errors
from chatsite.logs import current_request_id

PROBLEM_TYPE = "application/problem+json"
API_PREFIX = "/v1/"
OPENAI_PATHS = re.compile("/v1/(chat/completions|completions|models)(/|$)")
# The rest of that API: whoever calls it expects errors of its form.
NOT_OFFERED_PATHS = re.compile(
    "/v1/(assistants|audio|batches|edits|embeddings|engines|files|fine_tuning|images|moderations|realtime|responses"
    "|threads|uploads|vector_stores)(/|$)"
)
NOT_OFFERED = "This part of the OpenAI API is not offered by this site."
DEFAULT_RETRY_SECONDS = 1.0
log = structlog.stdlib.get_logger(__name__)

CLOSE_INTERNAL_ERROR = 1011
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_TOO_SLOW = 4408  # sent by the consumer that measures it
_CLOSE_CODES = {401: 4401, 403: 4404, 404: 4404, 413: 1009, 429: 4429, 503: CLOSE_TRY_AGAIN_LATER}
CLOSE_INVALID = 4400

# What a page says where nobody knows better: its title, and the sentence in place of the API's
_PAGE_WORDS = {
    400: ("That did not work", "The address or the form was not understood. Nothing was changed."),
    401: ("Sign in first", "This page is for people who are signed in."),
    403: ("Not allowed", "Your account may not open this page or do this."),
    404: (
        "Page not found",
        "There is nothing at this address. It may have been deleted, or it belongs to somebody else.",
    ),
    405: ("That did not work", "This address does not take that kind of request. Nothing was changed."),
    409: ("Changed meanwhile", "This was changed in another place. Reload the page and try again."),
    413: ("Too large", "What was sent is larger than this site takes. Nothing was changed."),
    429: ("Too many requests", "Please wait a little, then try again. Nothing was changed."),
    500: ("Something went wrong", "The fault is on our side, and it was noted. What you had saved is kept."),
    503: ("Not available now", "The site cannot answer at the moment. Your conversations are kept; try again shortly."),
}


@dataclass(frozen=True)
class ErrorAnswer:
    """A finished HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def convert(error: BaseException) -> errors.AppError:
    """The AppError behind any exception. What is unexpected is logged with its traceback; the caller learns nothing."""
    if isinstance(error, errors.AppError):
        return error
    known = _from_django(error) or _from_rest(error) or _from_parsers(error) or _from_stores(error)
    if known is None:
        log.error("unexpected error", exc_info=error)
        return errors.AppError()
    return known


def retryable(error: errors.AppError) -> bool:
    """Whether the same call may succeed later."""
    if error.should_retry is not None:
        return error.should_retry
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def problem(error: errors.AppError, request_id: str) -> ErrorAnswer:
    """The RFC 9457 answer: type, title, status, detail, code, request_id; where known also param and retry_after.

    And whatever else this error says (`members`).
    """
    fields: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "request_id": request_id,
    }
    if error.param is not None:
        fields["param"] = error.param
    if error.retry_after is not None:
        fields["retry_after"] = round(error.retry_after, 3)  # seconds, finer than the header
    fields |= error.members
    headers = {"Content-Type": PROBLEM_TYPE, **error_headers(error)}
    return ErrorAnswer(error.status, headers, json.dumps(fields).encode())


# What the OpenAI API calls the same, where it has a name for it.
_OPENAI_CODES = {
    "not_authenticated": "invalid_api_key",
    "unknown_model": "model_not_found",
    "context_too_long": "context_length_exceeded",
    "rate_limited": "rate_limit_exceeded",
    "budget_exhausted": "insufficient_quota",
    "internal_error": "server_error",
}
_OPENAI_STATUSES = {"unknown_model": 404}
_OPENAI_TYPES = {403: "permission_error"}


def openai_error(error: errors.AppError) -> dict[str, Any]:
    """The body that clients of the OpenAI API expect: `error` with message, type, param and code, all four.

    And whatever else this error says (`members`), which those clients pass over.
    """
    server = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = "server_error" if server else _OPENAI_TYPES.get(error.status, "invalid_request_error")
    code = _OPENAI_CODES.get(error.code, error.code)
    if isinstance(error, errors.RateLimited):
        code = code if code == "insufficient_quota" else "rate_limit_exceeded"  # high demand as well
        kind = code if code == "insufficient_quota" else error.of
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code, **error.members}}


def openai_answer(error: errors.AppError) -> ErrorAnswer:
    """The same error, as the OpenAI API would put it."""
    status = _OPENAI_STATUSES.get(error.code, error.status)
    headers = {"Content-Type": "application/json", **error_headers(error)}
    if error.retry_after is not None:  # the official clients look at this one first
        headers["retry-after-ms"] = str(max(1, math.ceil(error.retry_after * 1000)))
    return ErrorAnswer(status, headers, json.dumps(openai_error(error)).encode())


def refusal(path: str, error: errors.AppError, request_id: str) -> ErrorAnswer:
    """In the form that callers of that path expect, for who answers before any route is asked."""
    of_openai = OPENAI_PATHS.match(path) or NOT_OFFERED_PATHS.match(path)
    return openai_answer(error) if of_openai else problem(error, request_id)


def error_headers(error: errors.AppError) -> dict[str, str]:
    """Retry-After in whole seconds, rounded up; `x-should-retry`; and what the error itself carries."""
    headers = dict(error.headers)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    wait = error.retry_after
    if wait is None and error.status in {429, 503} and error.should_retry is not False:
        wait = DEFAULT_RETRY_SECONDS
    if wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    if error.should_retry is not None:
        headers["x-should-retry"] = str(error.should_retry).lower()
    return headers


def close_code(error: errors.AppError) -> int:
    """What a WebSocket is closed with."""
    if error.status in _CLOSE_CODES:
        return _CLOSE_CODES[error.status]
    return CLOSE_INVALID if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else CLOSE_INTERNAL_ERROR


def error_event(message_id: str | None, error: errors.AppError) -> dict[str, Any]:
    """The last event of a stream that failed after its headers were sent."""
    return {
        "type": "error",
        "messageId": message_id,
        "code": error.code,
        "message": error.message,
        "retryable": retryable(error),
    }


def drf_exception_handler(error: Exception, _context: Mapping[str, Any]) -> HttpResponse:
    """For settings.REST_FRAMEWORK: every exception of an API view."""
    set_rollback()
    return _problem_response(convert(error))


def handler400(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page_or_problem(request, convert(exception))


def handler403(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page_or_problem(request, convert(exception))


def handler404(request: HttpRequest, exception: Exception) -> HttpResponse:
    not_offered = NOT_OFFERED_PATHS.match(request.path) is not None
    return _page_or_problem(request, errors.NotFound(NOT_OFFERED if not_offered else None))


def handler500(request: HttpRequest) -> HttpResponse:
    """Django has logged the exception with its traceback, and calls this while it is being handled."""
    error = sys.exc_info()[1]
    known = error if isinstance(error, errors.AppError) else None
    if error is not None and known is None:
        known = _from_stores(error)
    return _page_or_problem(request, known or errors.AppError())


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """For settings.CSRF_FAILURE_VIEW."""
    return _page_or_problem(
        request, errors.PermissionDenied("This form is no longer valid. Go back, reload the page and try again.")
    )


def _problem_response(error: errors.AppError) -> HttpResponse:
    answer = problem(error, current_request_id())
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)


def _page_or_problem(request: HttpRequest, error: errors.AppError) -> HttpResponse:
    if not request.path.startswith(API_PREFIX):
        return error_page(request, error)
    answer = refusal(request.path, error, current_request_id())
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)


def error_page(
    request: HttpRequest, error: errors.AppError, *, title: str | None = None, detail: str | None = None
) -> HttpResponse:
    """A page that says what happened and where to go on. Its sentence is in `.detail`, for htmx to take."""
    known_title, general = _PAGE_WORDS.get(error.status, (HTTPStatus(error.status).phrase, None))
    own = type(error).__module__ != errors.__name__  # an app's, which says what this is about
    told = own or error.message != (type(error).__doc__ or "").strip()  # by whoever raised it
    context = {
        "title": title or known_title,
        "detail": detail or (error.message if told or general is None else general),
        "request_id": current_request_id() if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "",
        "way_back": error.param != "Host",  # every address of a host that is not served leads here again
        "again": retryable(error),
        "address": escape_leading_slashes(request.get_full_path()) if request.method == "GET" else "",
    }
    # Without the request: its context processors read the session and the database, which may be what failed.
    page = loader.render_to_string("chatsite/error.html", context)
    return HttpResponse(page, status=error.status, headers=error_headers(error))


def _from_django(error: BaseException) -> errors.AppError | None:
    if isinstance(error, Http404 | django_errors.ObjectDoesNotExist):
        return errors.NotFound()
    if isinstance(error, django_errors.PermissionDenied):
        return errors.PermissionDenied()
    if isinstance(error, django_errors.RequestDataTooBig):
        return errors.TooLarge()
    if isinstance(error, django_errors.DisallowedHost):
        return errors.InvalidInput("This site does not answer to that host name.", param="Host")
    if isinstance(error, django_errors.BadRequest | django_errors.SuspiciousOperation):
        return errors.InvalidInput()
    return None


def _from_rest(error: BaseException) -> errors.AppError | None:
    if isinstance(error, rest_errors.NotAuthenticated | rest_errors.AuthenticationFailed):
        return errors.NotAuthenticated()
    if isinstance(error, rest_errors.PermissionDenied):
        return errors.PermissionDenied()
    if isinstance(error, rest_errors.ValidationError):
        param, message = _first_problem(error.detail)
        return errors.InvalidInput(message, param=param)
    if isinstance(error, rest_errors.NotFound):
        return errors.NotFound()
    if isinstance(error, rest_errors.MethodNotAllowed):
        return errors.MethodNotAllowed()
    if isinstance(error, rest_errors.UnsupportedMediaType):
        return errors.UnsupportedMedia()
    if isinstance(error, rest_errors.Throttled):
        return errors.RateLimited(retry_after=getattr(error, "wait", None))
    if isinstance(error, rest_errors.APIException) and error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return errors.InvalidInput(str(error.detail))  # malformed JSON, an Accept header that nothing satisfies
    return None


def _from_parsers(error: BaseException) -> errors.AppError | None:
    """JSON that is nested too deep. Logged with its traceback, as it might be a recursion of our own."""
    if not isinstance(error, RecursionError):
        return None
    log.warning("nested too deep", exc_info=error)
    return errors.InvalidInput("The input is nested too deep.")


def _from_stores(error: BaseException) -> errors.AppError | None:
    """PostgreSQL or Redis is not there, or too busy."""
    stores = (
        django.db.OperationalError,
        django.db.InterfaceError,
        redis.exceptions.ConnectionError,
        redis.exceptions.TimeoutError,
    )
    if not isinstance(error, stores):
        return None
    log.warning("a store does not answer", exc_info=error)
    return errors.Unavailable(retry_after=2)


def _first_problem(detail: Any, path: str = "") -> tuple[str | None, str]:
    """The first field that is wrong, as `items.0.name`, and what is wrong with it."""
    if isinstance(detail, dict) and detail:
        name, inner = next(iter(cast(dict[str, Any], detail).items()))
        if name == "non_field_errors":
            return _first_problem(inner, path)
        return _first_problem(inner, f"{path}.{name}" if path else str(name))
    if isinstance(detail, list) and detail:
        first = next((index for index, item in enumerate(detail) if item), 0)
        nested = isinstance(detail[first], dict | list)
        return _first_problem(detail[first], f"{path}.{first}" if nested and path else path)
    return path or None, str(detail)
