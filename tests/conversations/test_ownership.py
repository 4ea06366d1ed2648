"""S32: nobody reaches what is somebody else's, on any route there is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.urls import URLPattern

from chatsite.asgi import application
from chatsite.database import run_db
from chatsite.ids import new_id
from conversations import services
from conversations.models import Conversation, Message
from conversations.urls import api_urlpatterns
from inference.models import Request
from tests.conftest import Person
from tests.conversations.callers import Caller, conv, msg, uuid_of

BODIES: dict[str, Any] = {"POST": {"content": "Hello"}, "PATCH": {"title": "Mine"}}
EMPTY = re.compile(r"/(stop|continue|regenerate)$")


@dataclass(frozen=True)
class Address:
    """A method and a path with an `{id}` in it."""

    method: str
    path: str


def addresses() -> Iterator[Address]:
    """Every route of the API that names an object, raw and Django's."""
    for route in application.application_mapping["http"].routes:
        if "{id}" in route.name:
            yield from (Address(method, route.name) for method in route.methods)
    for pattern in api_urlpatterns:
        assert isinstance(pattern, URLPattern)
        path = re.sub(r"<str:\w+>", "{id}", f"/{pattern.pattern}")
        if "{id}" in path:
            view = pattern.callback.cls  # type: ignore[attr-defined]
            yield from (
                Address(name.upper(), path)
                for name in view.http_method_names
                if hasattr(view, name) and name != "options"
            )


ADDRESSES = sorted(addresses(), key=lambda address: (address.path, address.method))


def test_the_table_has_routes_of_both_kinds() -> None:
    assert Address("GET", "/v1/messages/{id}/stream") in ADDRESSES
    assert Address("DELETE", "/v1/conversations/{id}") in ADDRESSES
    assert len(ADDRESSES) >= 11


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: f"{address.method} {address.path}")
async def test_s32_another_users_object_is_not_found(
    person: Person, stranger: Person, conversation: Conversation, address: Address
) -> None:
    accepted = await services.send(person.principal, conversation.id, "Secret")
    kinds = {
        "conversations": conv(conversation.id),
        "messages": msg(accepted.message_id),
        "requests": f"req_{accepted.request_id}",
    }
    own = kinds[address.path.split("/")[2]]
    prefix = own.partition("_")[0]
    body = {} if EMPTY.search(address.path) else BODIES.get(address.method)
    before = await run_db(_state)
    for text in (own, f"{prefix}_{new_id()}", f"{prefix}_x", str(uuid_of(own)), own.upper()):
        answer = await Caller(stranger.headers).call(address.method, address.path.replace("{id}", text), body)
        assert (answer.status, answer.json()["code"]) == (404, "not_found"), (text, answer.body)
        assert b"Secret" not in answer.body
    assert await run_db(_state) == before
    nobody = await Caller({}).call(address.method, address.path.replace("{id}", own), body)
    assert (nobody.status, nobody.json()["code"]) == (401, "not_authenticated")


def _state() -> list[Any]:
    rows = [*Message.objects.order_by("id").values_list("id", "status", "content")]
    requests = [*Request.objects.order_by("id").values_list("id", "status", "cancel_requested_at")]
    return [rows, requests, [*Conversation.objects.values_list("id", "title")]]


async def test_s32_another_users_message_as_parent(
    person: Person, stranger: Person, conversation: Conversation
) -> None:
    accepted = await services.send(person.principal, conversation.id, "Secret")
    mine = await run_db(lambda: services.create_conversation(stranger.principal))
    answer = await Caller(stranger.headers).call(
        "POST", f"/v1/conversations/{conv(mine.id)}/messages", {"content": "Hi", "parent": msg(accepted.message_id)}
    )
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


async def test_s32_lists_show_only_what_is_the_callers(
    person: Person, stranger: Person, conversation: Conversation
) -> None:
    answer = await Caller(stranger.headers).call("GET", "/v1/conversations")
    assert answer.json() == {"data": [], "next_cursor": None}
