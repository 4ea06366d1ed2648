"""A session that was ended does not come back, whatever its own requests do at that moment."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.backends.base import UpdateError
from django.core.cache import cache
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from chatsite.accounts import services, sessions
from chatsite.accounts.session_store import SessionStore
from tests.admin_rows import signed_in
from tests.chatsite.entering import is_in, sign_in
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db(transaction=True)
Elsewhere = Callable[..., Future[Any]]


@pytest.fixture
def thief(person: Person) -> Client:
    client = Client()
    sign_in(client, person.user.email, PASSWORD)
    return client


@pytest.fixture
def meanwhile() -> Iterator[Elsewhere]:
    """Runs something in another thread, with a connection of its own."""

    def call(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        yield lambda function, *args: pool.submit(call, function, *args)


def key_of(client: Client) -> str:
    return client.cookies["sessionid"].value


def end_one(person: Person, thief: Client) -> None:
    assert sessions.end(person.user, UserSession.objects.get(session_key=key_of(thief)).pk, "")


def end_in_the_admin(person: Person, thief: Client) -> None:
    root = signed_in(services.create_user("root@example.com", PASSWORD, superuser=True))
    row = UserSession.objects.get(session_key=key_of(thief))
    form = {"action": "end", "_selected_action": [str(row.pk)]}
    assert root.post(reverse("admin:usersessions_usersession_changelist"), form).status_code == 302


def deactivate(person: Person, thief: Client) -> None:
    services.deactivate_user(person.user)
    services.activate_user(person.user)


WAYS: list[Callable[[Person, Client], Any]] = [
    end_one,
    end_in_the_admin,
    deactivate,
    lambda person, thief: sessions.end_others(person.user, "another"),
    lambda person, thief: sessions.end_all(person.user),
    lambda person, thief: SessionStore(key_of(thief)).flush(),
]


@pytest.mark.parametrize("end", WAYS)
def test_a_request_before_the_commit_does_not_bring_the_session_back(
    person: Person, thief: Client, meanwhile: Elsewhere, end: Callable[[Person, Client], Any]
) -> None:
    with transaction.atomic():
        end(person, thief)
        meanwhile(is_in, thief).result(30)
    assert not is_in(thief)
    assert not SessionStore(key_of(thief)).load()


@pytest.mark.parametrize("end", WAYS)
def test_nor_does_one_that_has_read_the_row_before(
    person: Person,
    thief: Client,
    meanwhile: Elsewhere,
    end: Callable[[Person, Client], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_read, ended = Event(), Event()
    store = SessionStore(key_of(thief))

    def read_slowly() -> Any:
        row = SessionStore._get_session_from_db(store)
        has_read.set()
        assert ended.wait(30)
        return row

    monkeypatch.setattr(store, "_get_session_from_db", read_slowly)
    cache.clear()
    reading = meanwhile(store.load)
    assert has_read.wait(30)
    end(person, thief)
    ended.set()
    assert reading.result(30), "of a request that began before"
    assert not is_in(thief)


def test_nor_does_one_that_is_saving(
    person: Person, thief: Client, meanwhile: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SessionStore(key_of(thief))
    store["seen"] = 1
    has_written, ended = Event(), Event()
    put = store._cache.set

    def put_late(*args: Any) -> None:
        has_written.set()
        ended.wait(1)  # who ends the session waits for this one, so that it goes on in vain
        put(*args)

    monkeypatch.setattr(store, "_cache", type("Late", (), {"set": staticmethod(put_late)}))
    saving = meanwhile(store.save)
    assert has_written.wait(30)
    assert sessions.end_all(person.user) == 1
    ended.set()
    saving.result(30)
    assert not is_in(thief)


def test_an_ended_session_is_not_saved_again(person: Person, thief: Client) -> None:
    store = SessionStore(key_of(thief))
    store["seen"] = 1
    sessions.end_all(person.user)
    with pytest.raises(UpdateError):
        store.save()
    assert not is_in(thief)


def test_whoever_was_signed_out_can_sign_in_again_with_the_same_browser(person: Person, thief: Client) -> None:
    old = key_of(thief)
    sessions.end_all(person.user)
    assert thief.get("/accounts/login/").status_code == 200
    assert sign_in(thief, person.user.email, PASSWORD).headers["location"] == "/"
    assert is_in(thief) and key_of(thief) != old


async def test_async_code_sees_the_same(person: Person) -> None:
    store = SessionStore()
    await store.aset("a", 1)
    await store.asave()
    key = store.session_key
    assert key and await store.aexists(key) and await SessionStore(key).aget("a") == 1
    await store.aflush()
    assert not await store.aexists(key) and await SessionStore(key).aload() == {}
