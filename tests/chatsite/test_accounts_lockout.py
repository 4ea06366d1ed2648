"""Who guesses is locked out, wherever they come from; whoever the account belongs to is not locked out by them."""

import time
from typing import Any

import pytest
from django.core import mail, signing
from django.test import Client

from chatsite.accounts import known_browsers
from chatsite.accounts.models import User
from tests.chatsite.entering import NEW_PASSWORD, is_in, last_link, sign_in, text_of
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
COOKIE = known_browsers.COOKIE


def guess(client: Client, email: str, times: int, **more: Any) -> list[int]:
    return [sign_in(client, email, "wrong", **more).status_code for _ in range(times)]


def guess_from(networks: int, email: str, *, times: int = 1) -> list[int]:
    return [
        status
        for number in range(networks)
        for status in guess(Client(), email, times, REMOTE_ADDR=f"192.0.2.{number}")
    ]


@pytest.fixture
def few(settings: Any) -> int:
    """All networks together have fewer attempts than they really have, which takes less time to try."""
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "login_failed_account": "6/30m/key"}
    return 7


@pytest.fixture
def known(person: Person) -> Client:
    """A browser in which Ada was signed in, and signed out again."""
    client = Client()
    sign_in(client, person.user.email, PASSWORD)
    client.post("/accounts/logout/")
    assert not is_in(client)
    return client


def test_one_network_guesses_five_times(person: Person) -> None:
    assert guess(Client(), person.user.email, 7) == [200] * 5 + [429] * 2
    assert guess(Client(), person.user.email.upper(), 1) == [429]
    answer = sign_in(Client(), person.user.email, PASSWORD)
    assert answer.status_code == 429, "who guesses must not learn that it was right"
    assert 290 <= int(answer.headers["retry-after"]) <= 300
    assert "Try again in 5 minutes" in text_of(answer) and "Nothing is wrong with the account" in text_of(answer)


def test_and_ten_times_in_half_an_hour(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    now, tried = time.time(), 0
    for minute in range(0, 29, 2):
        monkeypatch.setattr(time, "time", lambda minute=minute: now + 60 * minute)
        tried += guess(Client(), person.user.email, 3).count(200)
    assert tried == 10
    assert sign_in(Client(), person.user.email, PASSWORD).status_code == 429
    monkeypatch.setattr(time, "time", lambda: now + 60 * 42)
    assert sign_in(Client(), person.user.email, PASSWORD).status_code == 302


def test_whatever_an_owner_tries_while_locked_makes_it_no_longer(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    guess(Client(), person.user.email, 5)
    for minute in (1, 2, 3, 4):
        monkeypatch.setattr(time, "time", lambda minute=minute: now + 60 * minute)
        assert guess(Client(), person.user.email, 2) == [429] * 2
    monkeypatch.setattr(time, "time", lambda: now + 301)
    assert guess(Client(), person.user.email, 6) == [200] * 5 + [429]


def test_all_networks_together_guess_thirty_times_in_half_an_hour(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as five times in five minutes, which it was for all of them once."""
    assert guess_from(40, person.user.email) == [200] * 30 + [429] * 10
    answer = sign_in(Client(), person.user.email, PASSWORD, REMOTE_ADDR="198.51.100.1")
    assert answer.status_code == 429 and 1700 <= int(answer.headers["retry-after"]) <= 1800
    assert guess(Client(), "eve@example.com", 1, REMOTE_ADDR="192.0.2.1") == [200], "others go on"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1801)
    assert sign_in(Client(), person.user.email, PASSWORD, REMOTE_ADDR="198.51.100.1").status_code == 302


def test_an_unknown_address_is_locked_as_a_known_one_is(person: Person, few: int) -> None:
    assert guess_from(few, "nobody@example.com") == guess_from(few, person.user.email)


def test_a_stranger_does_not_lock_out_who_comes_from_elsewhere(person: Person) -> None:
    for _ in range(4):
        guess(Client(), person.user.email, 12)
    owner = Client(REMOTE_ADDR="198.51.100.1")
    assert guess(owner, person.user.email, 2) == [200, 200], "who may mistype, too"
    assert sign_in(owner, person.user.email, PASSWORD).status_code == 302 and is_in(owner)


def test_in_ipv6_a_network_is_a_64(person: Person) -> None:
    found = [guess(Client(), person.user.email, 1, REMOTE_ADDR=f"2001:db8::{number}")[0] for number in range(1, 8)]
    assert found == [200] * 5 + [429] * 2
    assert guess(Client(), person.user.email, 1, REMOTE_ADDR="2001:db8:0:1::1") == [200]


def test_nobody_locks_out_a_browser_that_is_known(person: Person, known: Client, few: int) -> None:
    guess(Client(), person.user.email, 12)
    guess_from(few, person.user.email)
    assert sign_in(Client(), person.user.email, PASSWORD, REMOTE_ADDR="198.51.100.1").status_code == 429
    known.defaults["REMOTE_ADDR"] = "198.51.100.2"
    assert guess(known, person.user.email, 2) == [200, 200]
    assert sign_in(known, person.user.email, PASSWORD).status_code == 302 and is_in(known)


def test_a_known_browser_guesses_no_more_often_than_a_network(person: Person, known: Client) -> None:
    found = [guess(known, person.user.email, 1, REMOTE_ADDR=f"192.0.2.{number}")[0] for number in range(7)]
    assert found == [200] * 5 + [429] * 2


def test_all_known_browsers_together_guess_no_more_often_than_all_networks(person: Person, few: int) -> None:
    """Somebody who had the password once may have made many."""
    browsers = []
    for number in range(8):
        browsers.append(Client(REMOTE_ADDR=f"192.0.2.{number}"))
        sign_in(browsers[-1], person.user.email, PASSWORD)
        browsers[-1].post("/accounts/logout/")
    assert len({each.cookies[COOKIE].value for each in browsers}) == 8
    assert [guess(each, person.user.email, 1)[0] for each in browsers] == [200] * 6 + [429] * 2


def test_a_browser_is_known_to_those_alone_who_were_signed_in_there(person: Person, stranger: Person, few: int) -> None:
    eve = Client(REMOTE_ADDR="192.0.2.1")
    sign_in(eve, stranger.user.email, PASSWORD)
    eve.post("/accounts/logout/")
    guess_from(few, person.user.email)
    assert guess(eve, person.user.email, 1) == [429]


def test_several_accounts_of_one_browser_are_known(person: Person, stranger: Person, known: Client, few: int) -> None:
    sign_in(known, stranger.user.email, PASSWORD)
    known.post("/accounts/logout/")
    for someone in (person, stranger):
        guess_from(few, someone.user.email)
        assert sign_in(Client(), someone.user.email, PASSWORD).status_code == 429
        assert sign_in(known, someone.user.email, PASSWORD, REMOTE_ADDR="198.51.100.1").status_code == 302
        known.post("/accounts/logout/")


def test_the_cookie_says_nothing_and_goes_nowhere_else(person: Person, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = True
    client = Client()
    assert COOKIE not in client.get("/accounts/login/").cookies
    assert COOKIE not in sign_in(client, person.user.email, "wrong").cookies
    cookie = sign_in(client, person.user.email, PASSWORD).cookies[COOKIE]
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["path"]) == (
        True,
        True,
        "Lax",
        "/accounts/",
    )
    name, addresses = signing.loads(cookie.value, salt=known_browsers.SALT)
    assert len(name) == 16 and len(addresses) == 1 and "ada" not in cookie.value
    alone = Client()
    alone.cookies[COOKIE] = cookie.value
    assert not is_in(alone), "it lets nobody in"


@pytest.mark.parametrize("value", ["", "x", "x:y:z", "\0", "W10:1:AAAA", "x" * 4000])
def test_a_forged_cookie_is_no_cookie(person: Person, value: str, few: int) -> None:
    guess_from(few, person.user.email)
    forger = Client()
    forger.cookies[COOKIE] = value
    assert guess(forger, person.user.email, 1, REMOTE_ADDR="198.51.100.1") == [429]


def test_a_browser_is_known_for_a_year(
    person: Person, known: Client, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    now = time.time()
    for days, status in ((364, 302), (366, 429)):
        monkeypatch.setattr(time, "time", lambda: now + 1)
        known = Client()
        sign_in(known, person.user.email, PASSWORD, REMOTE_ADDR=f"198.51.100.{days % 100}")
        known.post("/accounts/logout/")
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 86400)
        guess_from(few, person.user.email)
        assert sign_in(known, person.user.email, PASSWORD, REMOTE_ADDR="198.51.100.1").status_code == status


def test_a_reset_unlocks_at_once_and_everywhere(client: Client, person: Person, few: int) -> None:
    laptop = Client(REMOTE_ADDR="198.51.100.1")
    assert guess(laptop, person.user.email, 6)[-1] == 429
    guess_from(few, person.user.email)
    client.post("/accounts/password/reset/", {"email": person.user.email})
    form = client.get(last_link(person.user.email)).headers["location"]
    client.post(form, {"password1": NEW_PASSWORD})
    assert sign_in(laptop, person.user.email, NEW_PASSWORD).status_code == 302
    assert guess_from(few, person.user.email).count(200) == 6, "and those who guess begin anew, no more"
    assert User.objects.get().check_password(NEW_PASSWORD) and mail.outbox


def test_others_who_guess_do_not_keep_the_owner_from_showing_who_they_are(
    client: Client, person: Person, few: int
) -> None:
    sign_in(client, person.user.email, PASSWORD)
    guess_from(few, person.user.email)
    assert sign_in(Client(), person.user.email, PASSWORD).status_code == 429, "locked for who comes anew"
    assert client.post("/accounts/reauthenticate/", {"password": PASSWORD}).status_code == 302
