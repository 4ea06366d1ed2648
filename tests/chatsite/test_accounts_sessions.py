"""Where one is signed in, and signing out there."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisConnectionError

from chatsite import notices
from chatsite.accounts import services, sessions
from chatsite.accounts.authentication import authenticate_scope
from chatsite.accounts.devices import device_name
from chatsite.accounts.models import User
from chatsite.database import run_db
from chatsite.errors import NotAuthenticated
from chatsite.redis import sync_client
from tests.asgi_client import http_scope
from tests.chatsite.entering import is_in, sign_in, text_of
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db(transaction=True)
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def ada(client: Client, person: Person) -> Client:
    sign_in(client, person.user.email, PASSWORD)
    return client


@pytest.fixture
def elsewhere(person: Person) -> Client:
    client = Client(headers={"user-agent": FIREFOX}, REMOTE_ADDR="192.0.2.7")
    sign_in(client, person.user.email, PASSWORD)
    return client


def row_of(client: Client) -> UserSession:
    return UserSession.objects.get(session_key=client.session.session_key)


def told(person: Person) -> list[bytes]:
    return [fields[b"c"] for _, fields in sync_client().xrange(notices.stream_key(person.user.id))]  # type: ignore[union-attr,misc]


def test_the_list_says_which_devices(ada: Client, elsewhere: Client) -> None:
    page = text_of(ada.get("/account/"))
    assert "Firefox on Windows 192.0.2.7 · signed in just now · last seen just now" in page
    assert page.count("this one") == 1 and "Sign out everywhere else" in page
    assert "Sign out everywhere else" not in text_of(Client().get("/account/", follow=True))


def test_one_other_session_is_ended(ada: Client, elsewhere: Client, person: Person) -> None:
    third = Client()
    sign_in(third, person.user.email, PASSWORD)
    answer = ada.post(f"/account/sessions/{row_of(elsewhere).pk}/end")
    assert answer.headers["location"] == "/account/#sessions"
    assert not is_in(elsewhere) and is_in(ada) and is_in(third)
    assert told(person)[-1] == str(notices.SESSIONS).encode()


def test_all_others_are_ended(ada: Client, elsewhere: Client, person: Person) -> None:
    ada.post("/account/sessions/end-others")
    assert not is_in(elsewhere) and is_in(ada)
    assert UserSession.objects.count() == 1


@pytest.mark.parametrize("number", ["0", "999999999", "99999999999999999999999999"])
def test_unknown_sessions_are_404(ada: Client, number: str) -> None:
    assert ada.post(f"/account/sessions/{number}/end").status_code == 404


def test_somebody_elses_session_is_404_and_goes_on(ada: Client, stranger: Person) -> None:
    eve = Client()
    sign_in(eve, stranger.user.email, PASSWORD)
    assert ada.post(f"/account/sessions/{row_of(eve).pk}/end").status_code == 404
    assert is_in(eve)


def test_this_session_is_not_ended_by_its_number(ada: Client) -> None:
    assert ada.post(f"/account/sessions/{row_of(ada).pk}/end").status_code == 404
    assert is_in(ada)


def test_signing_out_takes_the_row_away_and_tells_the_pages(ada: Client, person: Person) -> None:
    ada.post("/accounts/logout/")
    assert not UserSession.objects.exists()
    assert told(person) == [str(notices.SESSIONS).encode()]


def test_expired_sessions_are_not_listed(ada: Client, elsewhere: Client) -> None:
    Session.objects.filter(session_key=elsewhere.session.session_key).update(expire_date=timezone.now())
    assert "Firefox" not in text_of(ada.get("/account/"))


def test_sessions_that_were_made_another_way_are_listed_too(person: Person) -> None:
    client = Client()
    client.force_login(person.user)
    assert "this one" in text_of(client.get("/account/"))


def test_allauths_own_list_leads_to_the_account_page(ada: Client) -> None:
    assert ada.get("/accounts/sessions/").headers["location"] == "/account/"


async def test_seen_is_written_every_few_minutes_by_sockets_and_calls(person: Person) -> None:
    client = Client()
    await run_db(sign_in, client, person.user.email, PASSWORD)
    row = await run_db(row_of, client)
    scope = http_scope("GET", "/", {"cookie": f"sessionid={row.session_key}"})

    async def seen_again() -> Any:
        await authenticate_scope(scope)
        return await run_db(lambda: UserSession.objects.get(pk=row.pk).last_seen_at)

    assert await seen_again() == row.last_seen_at, "seen a moment ago"
    old = timezone.now() - timedelta(hours=1)
    await run_db(lambda: UserSession.objects.update(last_seen_at=old))
    assert await seen_again() == old, "this process has looked a moment ago"
    sessions.seen_lately.clear()
    assert await seen_again() > timezone.now() - timedelta(minutes=1)


async def test_an_ended_session_is_refused_at_once(person: Person) -> None:
    client = Client()
    await run_db(sign_in, client, person.user.email, PASSWORD)
    scope = http_scope("GET", "/", {"cookie": f"sessionid={client.session.session_key}"})
    assert (await authenticate_scope(scope)).principal == person.session_principal
    assert await run_db(sessions.end_all, person.user) == 1
    with pytest.raises(NotAuthenticated):
        await authenticate_scope(scope)


def test_an_operators_change_reaches_the_pages(ada: Client, person: Person) -> None:
    person.user.email, person.user.is_active = "ada@other.example", False
    person.user.save()
    services.settle_user(person.user)
    assert told(person)[-1] == str(notices.SESSIONS).encode()
    assert not is_in(ada)
    User.objects.update(is_active=True)
    assert sign_in(Client(), "ada@other.example", PASSWORD).headers["location"] == "/"


def test_while_the_cache_is_away_an_end_is_not_half_done(
    elsewhere: Client, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cached session would be back with the cache."""

    def away(*_: Any, **__: Any) -> None:
        raise RedisConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(cache._connections[cache._alias], "set", away)  # type: ignore[attr-defined]
        with pytest.raises(RedisConnectionError):
            sessions.end_all(person.user)
    assert is_in(elsewhere) and UserSession.objects.count() == 1
    assert sessions.end_all(person.user) == 1
    assert not is_in(elsewhere)


CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (FIREFOX, "Firefox on Windows"),
        (CHROME, "Chrome on Linux"),
        (f"{CHROME} Edg/140.0", "Edge on Linux"),
        (CHROME.replace("X11; Linux x86_64", "Linux; Android 15; Pixel 9"), "Chrome on Android"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.0 Safari/605.1", "Safari on Mac"),
        ("curl/8.5.0", "curl"),
        ("<script>", "Unknown device"),
        ("", "Unknown device"),
    ],
)
def test_devices_in_plain_words(user_agent: str, name: str) -> None:
    assert device_name(user_agent) == name
