"""API keys on the account page: made, shown once, revoked by their owner only."""

import logging
import re

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client

from chatsite.accounts import keys
from chatsite.accounts.models import ApiKey
from chatsite.ids import new_id
from tests.chatsite.entering import sign_in, text_of
from tests.chatsite.key_pages import KEYS, NEW, ada, create, form_of, key_in, works
from tests.conftest import PASSWORD, Person

__all__ = ["ada"]
pytestmark = pytest.mark.django_db


def test_s33_a_key_is_shown_once_and_kept_nowhere(
    ada: Client, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    form = form_of(ada)
    page = create(ada, "Billing script", form)
    text = key_in(page)
    assert page.status_code == 200 and "no-store" in page.headers["cache-control"]
    again = create(ada, "Billing script", form)
    key = ApiKey.objects.get(name="Billing script")  # the only one
    assert again.headers["location"] == f"{KEYS}/{key.public_id}", "a reload sends the same form"
    told = ada.get(again.headers["location"])
    assert "shown once" in text_of(told) and text not in told.content.decode()
    account = ada.get("/account/")
    assert text not in account.content.decode() and text[:8] in account.content.decode()
    assert "no-store" in account.headers["cache-control"]
    assert text[8:] not in caplog.text
    assert all(text[8:] not in str(each.get_decoded()) for each in Session.objects.all())
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', [f"%{text[8:]}%"])
            assert cursor.fetchone() == (0,), table


def test_a_key_acts_for_its_maker(ada: Client, person: Person) -> None:
    key = ApiKey.objects.get(digest=keys.digest_of(key_in(create(ada, "mine"))))
    assert (key.user, key.organization) == (person.user, person.organization)


def test_a_key_is_revoked_after_a_question_and_stops_at_once(ada: Client, person: Person) -> None:
    text = key_in(create(ada, "Old script"))
    key = ApiKey.objects.get(name="Old script")
    assert works(text)
    assert "Revoke this key?" in text_of(ada.get(f"{KEYS}/{key.public_id}/revoke"))
    assert works(text), "asking revokes nothing"
    assert ada.post(f"{KEYS}/{key.public_id}/revoke").headers["location"] == "/account/#keys"
    assert not works(text)
    page = text_of(ada.get("/account/"))
    working, _, ended = page.partition("Keys that have ended")
    assert "The key “Old script” is revoked." in working and text[:8] not in working
    assert text[:8] in ended and "Revoked just now" in ended
    assert "is revoked" in text_of(ada.get(f"{KEYS}/{key.public_id}/revoke"))
    assert ada.post(f"{KEYS}/{key.public_id}/revoke").status_code == 302


def test_somebody_elses_key_is_404_and_goes_on(ada: Client, stranger: Person) -> None:
    for page in ("", "/rotate", "/revoke"):
        for ask in (ada.get, ada.post):
            assert ask(f"{KEYS}/{stranger.key.public_id}{page}").status_code == 404
    assert works(stranger.secret)


@pytest.mark.parametrize("key", ["key_x", "x", "0", f"conv_{new_id()}", f"key_{new_id()}", "key_" + "9" * 36])
def test_unknown_keys_are_404(ada: Client, key: str) -> None:
    for page in ("", "/rotate", "/revoke"):
        assert ada.post(f"{KEYS}/{key}{page}").status_code == 404


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "Give the key a name"),
        ("   ", "Give the key a name"),
        ("x" * 101, "at most 100"),
        ("two\nlines", "cannot be shown"),
        ("nul\0", "Null characters"),
        ("turned \u202eround", "cannot be shown"),
    ],
)
def test_a_name_is_needed_and_bounded(ada: Client, person: Person, name: str, said: str) -> None:
    answer = create(ada, name)
    assert answer.status_code == 400 and said in text_of(answer)
    assert ApiKey.objects.count() == 1


def test_s34_a_name_is_text(ada: Client) -> None:
    page = create(ada, "<script>alert(1)</script>").content.decode()
    page += ada.get("/account/").content.decode()
    page += ada.get(f"{KEYS}/{ApiKey.objects.latest('created_at').public_id}/revoke").content.decode()
    assert "<script>alert" not in page and page.count("&lt;script&gt;alert(1)") >= 3


@pytest.mark.parametrize("form", ["", "x", "x:y:z"])
def test_a_form_that_is_not_ours_makes_nothing(ada: Client, form: str) -> None:
    page = create(ada, "k to keep", form, scopes=["read"])
    assert page.status_code == 400 and "too old" in text_of(page)
    assert 'value="k to keep"' in page.content.decode(), "what was filled in stays"
    assert ApiKey.objects.count() == 1
    again = re.search(r'name="form" value="([^"]+)"', page.content.decode())
    assert again and key_in(create(ada, "k to keep", again[1]))


def test_a_form_of_somebody_else_makes_nothing(ada: Client, stranger: Person) -> None:
    eve = Client()
    sign_in(eve, stranger.user.email, PASSWORD)
    create(ada, "k", form_of(eve))
    assert not ApiKey.objects.filter(name="k").exists()


def test_there_are_so_many_keys_and_no_more(ada: Client, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_ACTIVE_KEYS", 2)
    form = form_of(ada)
    create(ada, "second")
    assert create(ada, "third", form).status_code == 302
    page = text_of(ada.get("/account/"))
    assert "You have 2 keys, which is the most." in page and "New key" not in page
    assert not ApiKey.objects.filter(name="third").exists()
    keys.revoke_api_key(person.key)
    create(ada, "third")
    assert ApiKey.objects.filter(name="third").exists()


def test_visitors_and_other_sites_make_no_keys(person: Person) -> None:
    assert Client().post(NEW, {"name": "k"}).headers["location"].startswith("/accounts/login/")
    client = Client(enforce_csrf_checks=True)
    client.force_login(person.user)
    assert client.post(NEW, {"name": "k"}).status_code == 403
    assert ApiKey.objects.count() == 1


def test_the_list_says_when_a_key_was_used(ada: Client, person: Person) -> None:
    assert "never used" in text_of(ada.get("/account/"))
    keys.note_key_used(person.key)
    assert "last used just now" in text_of(ada.get("/account/"))


def test_the_name_of_the_user_is_changed(ada: Client, person: Person) -> None:
    assert ada.post("/account/name", {"name": "  Ada L. "}).headers["location"] == "/account/#profile"
    person.user.refresh_from_db()
    assert person.user.name == "Ada L."
    answer = ada.post("/account/name", {"name": "x" * 151})
    assert answer.status_code == 400 and "at most 150" in text_of(answer)
    ada.post("/account/name", {"name": ""})
    person.user.refresh_from_db()
    assert person.user.name == ""


def test_forms_are_not_fetched(ada: Client) -> None:
    for path in ("/account/name", "/account/sessions/end-others", "/account/sessions/1/end"):
        assert ada.get(path).status_code == 405
    assert ada.post("/account/").status_code == 405
