"""Every kind of error becomes the right answer, in every interface's form."""

import json
from typing import Any

import django.db
import pytest
import redis.exceptions
from django.core import exceptions as django_errors
from django.http import Http404
from django.test import RequestFactory
from rest_framework import exceptions as rest_errors

from chatsite import error_responses, errors
from chatsite.logs import begin_request


class Spent(errors.RateLimited):
    """The budget is spent."""

    code = "budget_exhausted"
    should_retry = False


class TooManyTokens(errors.RateLimited):
    """The tokens are used up."""

    of = "tokens"


CONVERSIONS = [
    (Http404(), 404, "not_found", None),
    (django_errors.ObjectDoesNotExist(), 404, "not_found", None),
    (django_errors.PermissionDenied(), 403, "permission_denied", None),
    (django_errors.RequestDataTooBig(), 413, "too_large", None),
    (django_errors.DisallowedHost(), 400, "invalid_input", "Host"),
    (django_errors.SuspiciousOperation(), 400, "invalid_input", None),
    (rest_errors.NotAuthenticated(), 401, "not_authenticated", None),
    (rest_errors.AuthenticationFailed(), 401, "not_authenticated", None),
    (rest_errors.MethodNotAllowed("PUT"), 405, "method_not_allowed", None),
    (rest_errors.UnsupportedMediaType("text/plain"), 415, "unsupported_media_type", None),
    (rest_errors.ParseError(), 400, "invalid_input", None),
    (rest_errors.NotAcceptable(), 400, "invalid_input", None),
    (rest_errors.Throttled(wait=3), 429, "rate_limited", None),
    (rest_errors.ValidationError({"title": ["Too long."]}), 400, "invalid_input", "title"),
    (rest_errors.ValidationError({"items": [{}, {"name": ["Missing."]}]}), 400, "invalid_input", "items.1.name"),
    (rest_errors.ValidationError({"non_field_errors": ["No."]}), 400, "invalid_input", None),
    (rest_errors.ValidationError("No."), 400, "invalid_input", None),
    (redis.exceptions.ConnectionError(), 503, "unavailable", None),
    (redis.exceptions.TimeoutError(), 503, "unavailable", None),
    (django.db.OperationalError(), 503, "unavailable", None),
    (RecursionError(), 400, "invalid_input", None),
    (errors.IdempotencyMismatch(), 422, "idempotency_mismatch", None),
    (RuntimeError("secret"), 500, "internal_error", None),
    (rest_errors.APIException("secret"), 500, "internal_error", None),
]


@pytest.mark.parametrize(("error", "status", "code", "param"), CONVERSIONS)
def test_each_exception_has_one_meaning(error: Exception, status: int, code: str, param: str | None) -> None:
    converted = error_responses.convert(error)
    assert (converted.status, converted.code, converted.param) == (status, code, param)
    assert "secret" not in converted.message


def test_the_drf_handler_answers_in_problem_form() -> None:
    response = error_responses.drf_exception_handler(rest_errors.ValidationError({"title": ["Too long."]}), {})
    assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")
    body = json.loads(response.content)
    assert (body["code"], body["param"], body["detail"]) == ("invalid_input", "title", "Too long.")


@pytest.mark.parametrize(("wait", "header"), [(0.01, "1"), (1, "1"), (1.001, "2"), (None, "1")])
def test_retry_after_is_whole_seconds_rounded_up(wait: float | None, header: str) -> None:
    for kind in (errors.RateLimited, errors.Unavailable):
        assert error_responses.error_headers(kind(retry_after=wait))["Retry-After"] == header


def test_a_retry_that_cannot_help_says_so() -> None:
    headers = error_responses.error_headers(Spent())
    assert headers == {"x-should-retry": "false"}
    assert error_responses.error_headers(Spent(retry_after=90))["Retry-After"] == "90"


def test_in_openai_s_form_the_type_says_what_there_were_too_many_of() -> None:
    words = {"message": "m", "param": None}
    assert error_responses.openai_error(errors.RateLimited("m")) == {
        "error": {**words, "type": "requests", "code": "rate_limit_exceeded"}
    }
    assert error_responses.openai_error(TooManyTokens("m")) == {
        "error": {**words, "type": "tokens", "code": "rate_limit_exceeded"}
    }
    assert error_responses.openai_error(Spent("m")) == {
        "error": {**words, "type": "insufficient_quota", "code": "insufficient_quota"}
    }


def test_an_error_may_say_more_than_all_do() -> None:
    class Explained(errors.RateLimited):
        """Too many."""

    error = Explained()
    error.members = {"decision": {"x": 1.5}}
    assert json.loads(error_responses.problem(error, "r").body)["decision"] == {"x": 1.5}
    assert error_responses.openai_error(error)["error"]["decision"] == {"x": 1.5}
    assert "decision" not in json.loads(error_responses.problem(errors.RateLimited(), "r").body)
    assert list(error_responses.openai_error(errors.RateLimited())["error"]) == ["message", "type", "param", "code"]


def test_the_headers_of_a_limit_are_passed_on() -> None:
    error = errors.RateLimited()
    error.headers = {"x-ratelimit-limit-tokens": "5"}
    assert error_responses.problem(error, "r").headers["x-ratelimit-limit-tokens"] == "5"
    assert errors.RateLimited().headers == {}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotAuthenticated(), 4401),
        (errors.NotFound(), 4404),
        (errors.PermissionDenied(), 4404),
        (errors.RateLimited(), 4429),
        (errors.TooLarge(), 1009),
        (errors.InvalidInput(), 4400),
        (errors.Unavailable(), 1013),
        (errors.AppError(), 1011),
    ],
)
def test_websockets_are_closed_with_a_code_of_their_own(error: errors.AppError, code: int) -> None:
    assert error_responses.close_code(error) == code


@pytest.mark.parametrize(
    ("error", "retryable"),
    [(errors.Unavailable(), True), (errors.RateLimited(), True), (Spent(), False), (errors.NotFound(), False)],
)
def test_a_stream_ends_with_an_error_event(error: errors.AppError, retryable: bool) -> None:
    assert error_responses.error_event("msg_1", error) == {
        "type": "error",
        "messageId": "msg_1",
        "code": error.code,
        "message": error.message,
        "retryable": retryable,
    }


HANDLERS: list[tuple[Any, int]] = [
    (lambda request: error_responses.handler400(request, django_errors.SuspiciousOperation("secret")), 400),
    (lambda request: error_responses.handler403(request, django_errors.PermissionDenied("secret")), 403),
    (lambda request: error_responses.handler404(request, Http404("secret")), 404),
    (error_responses.handler500, 500),
    (lambda request: error_responses.csrf_failure(request, "secret"), 403),
]


@pytest.mark.parametrize(("handler", "status"), HANDLERS)
def test_django_s_own_errors_are_problems_under_v1_and_pages_elsewhere(handler: Any, status: int) -> None:
    problem = handler(RequestFactory().get("/v1/nothing"))
    assert (problem.status_code, problem["Content-Type"]) == (status, "application/problem+json")
    assert json.loads(problem.content)["status"] == status
    page = handler(RequestFactory().get("/nothing"))
    assert (page.status_code, page["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert b"<html" in page.content
    assert b"secret" not in problem.content + page.content


def page(path: str, error: errors.AppError, **words: str) -> str:
    request = RequestFactory().get("/")
    request.path = path
    return error_responses.error_page(request, error, **words).content.decode()


def test_a_page_says_it_in_its_own_words_unless_the_error_knows_better() -> None:
    assert "There is nothing at this address" in page("/c/x", errors.NotFound())
    assert "The title is too long." in page("/c/x", errors.InvalidInput("The title is too long."))
    assert ">Not sent<" in page("/", errors.InvalidInput("No."), title="Not sent")
    assert 'class="detail">Later.<' in page("/", errors.InvalidInput("No."), detail="Later.")


def test_a_page_leads_somewhere_that_helps() -> None:
    assert 'href="/"' in page("/nowhere", errors.NotFound())
    assert "Try again" not in page("/nowhere", errors.NotFound())
    assert 'href="/%2Fevil.example/%3C"' in page("//evil.example/<", errors.Unavailable())
    assert "href=" not in page("/", error_responses.convert(django_errors.DisallowedHost())).partition("<main")[2]


def test_only_a_fault_of_ours_has_a_reference() -> None:
    request = RequestFactory().get("/")
    begin_request("a-request")
    assert b"a-request" in error_responses.handler500(request).content
    assert b"a-request" not in error_responses.handler404(request, Http404()).content


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses/resp_1", "/v1/audio/speech", "/v1/files"])
def test_parts_of_openai_s_api_that_are_not_offered_are_refused_in_its_form(path: str) -> None:
    answer = error_responses.handler404(RequestFactory().post(path), Http404())
    assert (answer.status_code, answer["content-type"]) == (404, "application/json")
    assert json.loads(answer.content)["error"] == {
        "message": "This part of the OpenAI API is not offered by this site.",
        "type": "invalid_request_error",
        "param": None,
        "code": "not_found",
    }


@pytest.mark.parametrize("path", ["/v1/embedding", "/v1/conversations/x", "/v1/filesystem"])
def test_other_paths_of_the_api_are_not(path: str) -> None:
    answer = error_responses.handler404(RequestFactory().post(path), Http404())
    assert answer["content-type"] == "application/problem+json"
