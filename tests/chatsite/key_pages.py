"""The pages of API keys, with Django's client."""

import re
from typing import Any

import pytest
from django.test import Client

from chatsite.accounts.models import ApiKey
from tests.chatsite.entering import sign_in, text_of
from tests.conftest import PASSWORD, Person

KEYS = "/account/keys"
NEW = f"{KEYS}/new"
TERMS = {"scopes": ["chat", "read"], "expiry": "never"}


@pytest.fixture
def ada(client: Client, person: Person) -> Client:
    sign_in(client, person.user.email, PASSWORD)
    return client


def form_of(client: Client, address: str = NEW) -> str:
    found = re.search(r'name="form" value="([^"]+)"', client.get(address).content.decode())
    assert found
    return found[1]


def create(client: Client, name: str, form: str | None = None, **terms: Any) -> Any:
    form = form_of(client) if form is None else form
    return client.post(NEW, {**TERMS, "name": name, "form": form, **terms})


def made(client: Client, name: str, **terms: Any) -> ApiKey:
    assert create(client, name, **terms).status_code == 200
    return ApiKey.objects.get(name=name)


def change(client: Client, key: ApiKey, **terms: Any) -> Any:
    return client.post(f"{KEYS}/{key.public_id}", {**TERMS, "expiry": "keep", "name": key.name, **terms})


def rotate(client: Client, key: ApiKey, form: str | None = None, **choices: str) -> Any:
    address = f"{KEYS}/{key.public_id}/rotate"
    form = form_of(client, address) if form is None else form
    return client.post(address, {"overlap": "86400", "expiry": "never", "form": form, **choices})


def history(client: Client, key: ApiKey) -> str:
    return text_of(client.get(f"{KEYS}/{key.public_id}")).partition("History")[2]


def key_in(page: Any) -> str:
    (text,) = re.findall(r"sk-[A-Za-z0-9_-]{43}", page.content.decode())
    return str(text)


def works(text: str) -> bool:
    return bool(Client().get("/v1/conversations", headers={"authorization": f"Bearer {text}"}).status_code == 200)
