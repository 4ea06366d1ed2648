"""Signing in and out, and what stops those who guess."""

import logging
import time
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from chatsite.accounts import lockout
from chatsite.accounts.models import User
from tests.chatsite.entering import LOGIN, is_in, sign_in, text_of
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db


def guess(client: Client, email: str, times: int, **more: Any) -> Any:
    for _ in range(times):
        answer = sign_in(client, email, "wrong", **more)
    return answer


def test_in_and_out(client: Client, person: Person) -> None:
    assert client.get("/account/").headers["location"] == "/accounts/login/?next=/account/"
    assert sign_in(client, "ADA@Example.com", PASSWORD).headers["location"] == "/"
    assert is_in(client)
    assert "Sign out?" in text_of(client.get("/accounts/logout/"))
    assert is_in(client), "a link that somebody else made does not sign one out"
    assert client.post("/accounts/logout/").headers["location"] == LOGIN
    assert not is_in(client)


def test_the_page_has_no_script_of_its_own(client: Client) -> None:
    page = client.get(LOGIN).content.decode()
    assert "style=" not in page and "onclick" not in page
    assert all("src=" in each.split(">")[0] for each in page.split("<script")[1:])


@pytest.mark.parametrize("email", ["ada@example.com", "nobody@example.com"])
def test_a_wrong_password_and_an_unknown_address_look_alike(client: Client, person: Person, email: str) -> None:
    answer = guess(client, email, 1)
    assert answer.status_code == 200
    assert "The email address or the password is not right." in text_of(answer)


@pytest.mark.parametrize(
    ("email", "password"),
    [
        ("", ""),
        ("x" * 5000, "y"),
        ("ada@example.com", "nul\0"),
        ("nul\0@example.com", "x"),
        ("ada@example.com", "x" * 9000),
    ],
)
def test_bad_input_is_refused_in_the_form(client: Client, person: Person, email: str, password: str) -> None:
    answer = sign_in(client, email, password)
    assert answer.status_code == 200 and "field-error" in answer.content.decode()


@pytest.mark.parametrize(
    "next_url",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "http:///evil.example",
        "\0/x",
    ],
)
def test_next_stays_on_this_host(client: Client, person: Person, next_url: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "other.example"]
    for address in (next_url, "http://other.example/"):
        client = Client()
        answer = client.post(LOGIN, {"login": person.user.email, "password": PASSWORD, "next": address})
        assert answer.headers["location"] == "/", address
    own = client.post("/accounts/logout/", {"next": next_url})
    assert own.headers["location"] == LOGIN


def test_next_is_followed_here(client: Client, person: Person) -> None:
    answer = client.post(LOGIN, {"login": person.user.email, "password": PASSWORD, "next": "/account/"})
    assert answer.headers["location"] == "/account/"


def test_the_lock_opens_by_itself(client: Client, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    assert guess(client, person.user.email, 6).status_code == 429
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 200)
    assert "Try again in 2 minutes" in text_of(sign_in(client, person.user.email, PASSWORD))
    monkeypatch.setattr(time, "time", lambda: now + 301)
    assert sign_in(client, person.user.email, PASSWORD).status_code == 302


def test_an_unknown_address_is_locked_as_a_known_one_is(client: Client) -> None:
    assert guess(client, "nobody@example.com", 6).status_code == 429


def test_a_client_that_tries_many_accounts_is_locked(client: Client, person: Person) -> None:
    for number in range(10):
        assert guess(client, f"p{number}@example.com", 1).status_code == 200
    answer = sign_in(client, person.user.email, PASSWORD)
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) <= 60
    assert sign_in(Client(), person.user.email, PASSWORD, REMOTE_ADDR="192.0.2.1").status_code == 302


def test_a_forged_forwarded_for_changes_nothing(person: Person) -> None:
    for number in range(10):
        headers = {"x-forwarded-for": f"198.51.100.{number}"}
        sign_in(Client(headers=headers), f"p{number}@example.com", "wrong")
    assert sign_in(Client(headers={"x-forwarded-for": "198.51.100.99"}), person.user.email, PASSWORD).status_code == 429


def test_behind_a_trusted_proxy_the_last_address_counts(person: Person, settings: Any) -> None:
    settings.TRUSTED_PROXIES = settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    for number in range(10):  # what the client wrote itself is ahead of what the proxy has seen
        headers = {"x-forwarded-for": f"198.51.100.{number}, 203.0.113.7"}
        sign_in(Client(headers=headers), f"p{number}@example.com", "wrong")
    locked = Client(headers={"x-forwarded-for": "203.0.113.7"})
    assert sign_in(locked, person.user.email, PASSWORD).status_code == 429
    other = Client(headers={"x-forwarded-for": "203.0.113.8"})
    assert sign_in(other, person.user.email, PASSWORD).status_code == 302


def test_right_passwords_do_not_add_up(person: Person) -> None:
    for _ in range(12):
        assert sign_in(Client(), person.user.email, PASSWORD).status_code == 302


def test_too_many_forms_of_any_kind_are_429(client: Client, person: Person) -> None:
    for number in range(20):
        assert client.post("/accounts/password/reset/", {"email": f"p{number}@example.com"}).status_code == 302
    assert client.post("/accounts/password/reset/", {"email": "p@example.com"}).status_code == 429
    for _ in range(5):
        answer = client.post("/accounts/password/reset/", {"email": person.user.email}, REMOTE_ADDR="192.0.2.5")
        assert answer.status_code == 302
    answer = client.post("/accounts/password/reset/", {"email": person.user.email}, REMOTE_ADDR="192.0.2.6")
    assert answer.status_code == 429 and answer.headers["retry-after"] == "60"
    assert "Try again in 1 minute" in text_of(answer)


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (59, "59 seconds"), (60, "1 minute"), (61, "2 minutes")]
)
def test_waits_are_told_in_words(seconds: int, words: str) -> None:
    assert lockout.in_words(seconds) == words


def test_the_admin_has_no_door_of_its_own(client: Client, make_person: Any) -> None:
    root = make_person("root@example.com", superuser=True)
    answer = client.get("/admin/")
    assert client.get(answer.headers["location"]).headers["location"] == "/accounts/login/?next=%2Fadmin%2F"
    for _ in range(12):
        answer = client.post("/admin/login/", {"username": root.user.email, "password": PASSWORD})
        assert answer.headers["location"].startswith("/accounts/login/"), "a password sent there is not looked at"
    assert not is_in(client)
    client.post(LOGIN, {"login": root.user.email, "password": PASSWORD, "next": "/admin/"})
    assert client.get("/admin/").status_code == 200
    assert client.get("/admin/password_change/").headers["location"] == "/accounts/password/change/"
    client.post("/admin/logout/")
    assert not is_in(client)


def test_the_admin_is_not_for_everybody(client: Client, person: Person) -> None:
    sign_in(client, person.user.email, PASSWORD)
    assert client.get("/admin/login/").status_code == 403


def test_a_disabled_account_says_so_only_to_who_knows_the_password(client: Client, person: Person) -> None:
    User.objects.update(is_active=False)
    assert "is not right" in text_of(guess(client, person.user.email, 1))
    answer = sign_in(client, person.user.email, PASSWORD)
    assert "disabled" in text_of(client.get(answer.headers["location"]))
    assert not is_in(client)


def test_without_the_cache_nobody_guesses_and_it_is_said(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise RedisConnectionError("Connection refused to redis://:secret@10.0.0.1")

    for name in ("add", "get", "set", "delete"):
        monkeypatch.setattr(cache._connections[cache._alias], name, away)  # type: ignore[attr-defined]
    client = Client(raise_request_exception=False)
    assert client.get(LOGIN).status_code == 200
    answer = sign_in(client, person.user.email, PASSWORD)
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert "Traceback" not in text_of(answer) and "10.0.0.1" not in text_of(answer)


def test_passwords_and_addresses_are_not_logged(
    client: Client, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sign_in(client, person.user.email, "a wrong password")
    sign_in(client, person.user.email, PASSWORD)
    assert "sign-in failed" in caplog.text
    assert "a wrong password" not in caplog.text and PASSWORD not in caplog.text
    assert not mail.outbox


def test_who_is_signed_in_guesses_no_more_often_than_others(client: Client, person: Person) -> None:
    sign_in(client, person.user.email, PASSWORD)
    answers = [client.post("/accounts/reauthenticate/", {"password": "wrong"}).status_code for _ in range(6)]
    assert answers == [200] * 5 + [429]
    assert client.post("/accounts/reauthenticate/", {"password": PASSWORD}).status_code == 429
