"""Every page of allauth is one of ours to look at, whoever opens it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.admin_rows import signed_in
from tests.chatsite.entering import sign_in
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
FILLED = {"uidb36": "zz", "key": "x", "provider_id": "oidc"}


def paths(patterns: Any, before: str = "") -> Iterator[str]:
    for each in patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from paths(each.url_patterns, route)
        elif isinstance(each, URLPattern):
            yield route


def filled(route: str) -> str:
    """`^confirm-email/(?P<key>[-:\\w]+)/$` with something in its places."""
    route = re.sub(r"\(\?P<(\w+)>[^)]*\)|<(?:\w+:)?(\w+)>", lambda found: FILLED[found[1] or found[2]], route)
    return "/" + re.sub(r"[\^$]", "", route)


def pages() -> list[str]:
    return sorted({filled(route) for route in paths(get_resolver().url_patterns) if route.startswith("accounts/")})


def test_the_list_of_pages_is_not_empty() -> None:
    assert len(pages()) > 20
    assert "/accounts/password/reset/key/zz-x/" in pages()


@pytest.mark.parametrize("signed_in", [False, True])
@pytest.mark.parametrize("path", pages())
def test_a_page_is_in_our_look_and_without_inline_code(person: Person, path: str, signed_in: bool) -> None:
    client = Client()
    if signed_in:
        sign_in(client, person.user.email, PASSWORD)
    answer = client.get(path)
    for _ in range(4):
        if answer.status_code not in {301, 302} or answer.headers["location"] == "/":
            break
        answer = client.get(answer.headers["location"])
    assert answer.status_code in {200, 302, 401, 404}
    if answer.status_code == 302:
        return
    page = answer.content.decode()
    assert "css/tokens.css" in page and "css/app.css" in page
    assert not re.search(r"<[^>]+\s(style|on\w+)=", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))


@pytest.mark.parametrize(
    "path", ["email/", "3rdparty/", "reauthenticate/", "password/change/", "password/reset/", "login/", "signup/", "x/"]
)
def test_no_page_of_an_account_is_kept(client: Client, person: Person, path: str) -> None:
    for visitor in (client, signed_in(person.user)):
        answer = visitor.get(f"/accounts/{path}")
        assert {"no-store", "private"} <= set(answer.headers["cache-control"].split(", ")), answer.status_code
