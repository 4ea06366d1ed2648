"""The OpenAPI document and its reference page."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from chatsite.asgi import application
from tests.conversations.callers import Caller

OPENAI = ("/v1/chat/", "/v1/completions", "/v1/models")
INLINE = re.compile(r"<style|<script(?![^>]*\bsrc=)|\bstyle=|\bon\w+=", re.IGNORECASE)


@pytest.fixture
def document(db: None, client: Client) -> dict[str, Any]:
    answer = client.get("/v1/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = json.loads(answer.content)
    return found


def routes() -> Iterator[tuple[str, str]]:
    """Method and path of everything under /v1/, raw and Django's."""
    for route in application.application_mapping["http"].routes:
        yield from ((method.lower(), route.name) for method in route.methods)
    for path, pattern in django_patterns(get_resolver().url_patterns):
        view = getattr(pattern.callback, "cls", None)
        if path.startswith("/v1/") and path != "/v1/openapi.json":
            assert view is not None, f"{path} is no API view"
            names = [name for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)]
            yield from ((name, path) for name in names)


def django_patterns(patterns: list[Any], prefix: str = "/") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from django_patterns(pattern.url_patterns, path)
        else:
            yield path, pattern


def test_no_route_is_missing(document: dict[str, Any]) -> None:
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(routes())


def test_each_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    seen = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            statuses = set(operation["responses"])
            assert {"400", "401", "403", "429", "500", "503"} < statuses
            assert method != "post" or {"408", "409", "413", "415", "422"} < statuses
            kind = "json" if path.startswith(OPENAI) else "problem+json"
            refusal = document["components"]["responses"][operation["responses"]["400"]["$ref"].rpartition("/")[2]]
            assert f"application/{kind}" in refusal["content"]
            assert operation["security"] == [{"apiKey": []}, {"session": []}], (method, path)  # either is enough


def test_each_operation_says_which_scope_a_key_needs(document: dict[str, Any]) -> None:
    needed = {
        f"{method} {path}": operation["x-required-scope"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(needed.values()) == {"chat", "read"}
    assert all((scope == "read") == name.startswith("get ") for name, scope in needed.items())
    for methods in document["paths"].values():
        for operation in methods.values():
            assert f"An API key needs the scope `{operation['x-required-scope']}`." in operation["description"]


def test_a_streaming_route_names_both_of_its_answers(document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/conversations/{id}/messages"]["post"]
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "queued" in operation["responses"]["200"]["description"]
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert names == {"id", "Idempotency-Key"}
    [body] = operation["requestBody"]["content"].values()
    named = {"content", "model", "parent", "max_tokens", "stream", "allow_fallback"}
    assert set(body["schema"]["properties"]) == named
    assert "X-Fallback-From" in operation["responses"]["200"]["headers"]
    assert body["schema"]["additionalProperties"] is False
    assert operation["requestBody"]["required"]


def test_the_document_generates_without_warnings(db: None, client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    document = json.loads(client.get("/v1/openapi.json").content)
    assert document["openapi"].startswith("3.")
    assert document["components"]["securitySchemes"]
    messages = capfd.readouterr().err
    assert "Warning" not in messages and "Error" not in messages, messages


def test_the_reference_needs_no_inline_script(db: None, client: Client) -> None:
    page = client.get("/docs/")
    assert page.status_code == 200
    html = page.content.decode()
    assert not INLINE.search(html), INLINE.search(html)
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert all(source.startswith("/") for source in sources), sources
    script = client.get(next(source for source in sources if "script=" in source).replace("&amp;", "&"))
    assert script["Content-Type"].startswith("application/javascript")
    assert b"/v1/openapi.json" in script.content
    assert "unsafe-inline" not in page["Content-Security-Policy"]
    assert html.index("js/reference.js") < html.index("swagger-ui.css")  # dark before anything is painted


async def test_the_document_needs_no_key(database: None) -> None:
    answer = await Caller({}).call("GET", "/v1/openapi.json")
    assert answer.status == 200
    assert answer.json()["info"]["title"]


def test_records_are_described_by_each_of_their_ids_and_in_refusals(document: dict[str, Any]) -> None:
    [name] = document["paths"]["/v1/requests/{id}"]["get"]["parameters"]
    assert "chatcmpl-" in name["description"] and name["in"] == "path"
    schemas = document["components"]["schemas"]
    assert "lead" in schemas["Request"]["properties"]["decision"]["description"]
    for error in ("Problem", "OpenAiError"):
        assert "decision" in schemas[error]["properties"]
        assert "decision" not in schemas[error]["required"]
