"""What every answer of Django carries."""

import logging
import re
from typing import Any

import pytest
import structlog
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path


def page(_request: HttpRequest) -> HttpResponse:
    structlog.stdlib.get_logger(__name__).info("in the view")
    return HttpResponse("hello")


def own_policy(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello", headers={"Content-Security-Policy": "default-src 'none'"})


def broken(_request: HttpRequest) -> HttpResponse:
    raise RuntimeError("secret detail")


urlpatterns = [
    path("page", page),
    path("slashed/", page),
    path("own-policy", own_policy),
    path("v1/broken", broken),
    path("broken", broken),
]
handler404 = "chatsite.error_responses.handler404"
handler500 = "chatsite.error_responses.handler500"


@pytest.fixture(autouse=True)
def _own_routes(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


def test_the_policy_forbids_inline_script_and_everything_from_elsewhere() -> None:
    policy = Client().get("/page")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self' ws://testserver wss://testserver" in policy


def test_a_view_may_set_its_own_policy() -> None:
    assert Client().get("/own-policy")["Content-Security-Policy"] == "default-src 'none'"


@pytest.mark.parametrize("address", ["/page", "/nothing", "/v1/nothing", "/broken"])
def test_every_answer_has_a_request_id(address: str) -> None:
    client = Client(raise_request_exception=False)
    assert re.fullmatch(r"[0-9a-f-]{36}", client.get(address)["x-request-id"])
    assert client.get(address, headers={"x-request-id": "mine_1"})["x-request-id"] == "mine_1"


async def test_async_requests_get_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        response = await AsyncClient().get("/page", headers={"x-request-id": "mine_1"})
    assert response["x-request-id"] == "mine_1"
    assert "default-src 'self'" in response["Content-Security-Policy"]
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [(line["event"], line["request_id"]) for line in lines] == [("in the view", "mine_1"), ("request", "mine_1")]


def test_an_error_page_names_the_request_but_not_the_cause() -> None:
    client = Client(raise_request_exception=False)
    answer = client.get("/v1/broken", headers={"x-request-id": "mine_1"})
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine_1")
    page = client.get("/broken", headers={"x-request-id": "mine_1"})
    assert b"mine_1" in page.content
    assert b"secret detail" not in answer.content + page.content


def test_the_access_line_has_route_status_and_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="chatsite.access"):
        Client().get("/page?q=private", headers={"x-request-id": "mine_1"})
    (line,) = [record.msg for record in caplog.records if record.name == "chatsite.access"]
    assert (line["route"], line["status"], line["request_id"]) == ("/page", 200, "mine_1")
    assert "private" not in str(line)


def test_an_unknown_host_gets_no_page() -> None:
    answer = Client(headers={"host": "evil.example"}).get("/page")
    assert answer.status_code == 400
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert "evil" not in answer["Content-Security-Policy"]


def test_what_outer_middleware_answers_has_the_policy() -> None:
    answer = Client().get("/slashed")  # CommonMiddleware leads to the address with a slash
    assert answer.status_code == 301
    assert "default-src 'self'" in answer["Content-Security-Policy"]
