"""Every route of the API says which scope it needs, and forms offer what some route needs."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, get_resolver
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from chatsite import scopes
from chatsite.accounts.permissions import HasScope
from chatsite.asgi import application
from chatsite.errors import InsufficientScope
from chatsite.raw import Route
from chatsite.scopes import Scope

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
OPEN = {"v1/openapi.json", "docs/"}  # the reference, for everybody
ROUTES: tuple[Route, ...] = application.application_mapping["http"].routes


def patterns(place: Any, prefix: str = "") -> Iterator[tuple[str, type]]:
    for each in place.url_patterns:
        address = f"{prefix}{each.pattern}"
        if not isinstance(each, URLPattern):
            yield from patterns(each, address)
        elif (view := getattr(each.callback, "cls", getattr(each.callback, "view_class", None))) is not None:
            yield address, view


def api_views() -> list[tuple[str, type[APIView]]]:
    return [
        (address, view)
        for address, view in patterns(get_resolver())
        if issubclass(view, APIView) and address not in OPEN
    ]


def test_there_are_routes_of_both_kinds() -> None:
    assert len(ROUTES) >= 9
    assert len(api_views()) >= 5


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.methods[0]} {route.name}")
def test_every_raw_route_needs_a_known_scope(route: Route) -> None:
    assert route.scope in Scope
    assert route.scope != Scope.READ or set(route.methods) <= {"GET", "HEAD"}


@pytest.mark.parametrize(("address", "view"), api_views(), ids=lambda part: part if isinstance(part, str) else "")
def test_every_api_view_says_a_scope_for_each_of_its_methods(address: str, view: type[APIView]) -> None:
    served = {method for method in METHODS if hasattr(view, method.lower())}
    needed: dict[str, Scope] = view.required_scopes  # type: ignore[attr-defined]
    assert served and served <= set(needed)
    assert HasScope in view.permission_classes
    assert all(needed[method] in Scope for method in served)
    assert all(needed[method] != Scope.READ for method in served - {"GET"})


def test_a_view_that_says_nothing_is_for_nobody() -> None:
    assert HasScope in api_settings.DEFAULT_PERMISSION_CLASSES


def test_forms_offer_exactly_what_some_route_needs() -> None:
    used = {route.scope for route in ROUTES}
    for _, view in api_views():
        served = {method for method in METHODS if hasattr(view, method.lower())}
        used |= {view.required_scopes[method] for method in served}  # type: ignore[attr-defined]
    assert set(scopes.OFFERED) == used


def test_every_scope_is_explained() -> None:
    assert set(scopes.EXPLAINED) == set(Scope)


@pytest.mark.parametrize(
    ("held", "said"), [(("read",), "It has read."), (("read", "batch"), "It has batch and read."), ((), "It has none.")]
)
def test_what_is_missing_is_named(held: tuple[str, ...], said: str) -> None:
    with pytest.raises(
        InsufficientScope, match=f"This needs the scope “chat”, which this API key does not have. {said}"
    ):
        scopes.require(held, Scope.CHAT)
    scopes.require((*held, "chat"), Scope.CHAT)
