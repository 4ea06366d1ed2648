"""API keys on the account page: made, shown once, revoked by their owner only."""

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from chatsite.accounts import keys
from chatsite.accounts.models import ApiKey, KeyEvent
from chatsite.accounts.protocol import Actor, Via
from chatsite.ids import new_id
from tests.chatsite.entering import sign_in, text_of
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
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


# What a key may do


def test_a_key_has_what_was_asked_for(ada: Client) -> None:
    limits = {"requests_per_minute": "60", "tokens_per_minute": "10000", "concurrent": "2"}
    key = made(ada, "Report", scopes=["read"], expiry="30", **limits)
    assert (key.scopes, key.requests_per_minute, key.tokens_per_minute, key.concurrent) == (["read"], 60, 10000, 2)
    assert key.expires_at is not None
    assert abs(key.expires_at - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    page = text_of(ada.get("/account/"))
    assert "read · expires in 30 days · 60 requests a minute, 10,000 tokens a minute, 2 replies at once" in page


def test_without_a_choice_a_key_may_chat_and_read_for_ever(ada: Client) -> None:
    page = ada.get(NEW).content.decode()
    assert re.findall(r'value="(\w+)"[^>]*checked', page) == ["chat", "read"]
    key = made(ada, "plain")
    assert (key.scopes, key.expires_at, key.requests_per_minute) == (["chat", "read"], None, None)
    assert "chat, read · never expires" in text_of(ada.get("/account/"))


def test_a_key_works_to_the_end_of_the_day_of_its_owner(ada: Client) -> None:
    ada.cookies["timezone"] = "Pacific/Auckland"
    key = made(ada, "dated", expiry="date", expires_on="2027-01-31")
    assert key.expires_at == datetime(2027, 1, 31, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"scopes": []}, "Choose at least one"),
        ({"scopes": ["everything"]}, "Choose among what is offered."),
        ({"scopes": ["admin"]}, "Choose among what is offered."),
        ({"expiry": "soon"}, "Choose when the key expires."),
        ({"expiry": "date"}, "Say on which day."),
        ({"expiry": "date", "expires_on": "31.1.2027"}, "Write the date as 2026-01-31."),
        ({"expiry": "date", "expires_on": "2001-01-31"}, "This day has passed."),
        ({"expiry": "date", "expires_on": "9999-12-31"}, "more than 10 years away"),
        ({"requests_per_minute": "0"}, "At least 1, or nothing."),
        ({"tokens_per_minute": "-5"}, "At least 1, or nothing."),
        ({"tokens_per_minute": "1.5"}, "Write a whole number, or nothing."),
        ({"concurrent": "9" * 30}, "At most 1,000,000,000."),
    ],
)
def test_terms_that_make_no_sense_are_refused_in_words(ada: Client, terms: dict[str, Any], said: str) -> None:
    answer = create(ada, "k", **terms)
    assert answer.status_code == 400 and said in text_of(answer)
    assert not ApiKey.objects.filter(name="k").exists()
    key = made(ada, "good")
    assert change(ada, key, **terms).status_code == 400
    assert keys.Terms.of(ApiKey.objects.get(pk=key.pk)) == keys.Terms.of(key)


def test_a_key_is_changed_and_its_end_stays_unless_another_is_chosen(ada: Client) -> None:
    key = made(ada, "old name", expiry="90")
    assert change(ada, key, name="new name", scopes=["read"], concurrent="3").status_code == 302
    changed = ApiKey.objects.get(pk=key.pk)
    assert (changed.name, changed.scopes, changed.concurrent, changed.expires_at) == (
        "new name",
        ["read"],
        3,
        key.expires_at,
    )
    change(ada, changed, expiry="never")
    assert ApiKey.objects.get(pk=key.pk).expires_at is None


def test_what_a_form_does_not_offer_a_key_keeps(ada: Client) -> None:
    key = made(ada, "batches")
    ApiKey.objects.filter(pk=key.pk).update(scopes=["chat", "batch"])
    change(ada, key, scopes=["read"])
    assert ApiKey.objects.get(pk=key.pk).scopes == ["read", "batch"]


@pytest.mark.parametrize("state", ["revoked", "expired", "replaced"])
def test_a_key_that_has_ended_or_was_replaced_is_not_changed(ada: Client, state: str) -> None:
    key = made(ada, "k")
    if state == "revoked":
        keys.revoke_api_key(key)
    elif state == "expired":
        ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
    else:
        rotate(ada, key)
    page = ada.get(f"{KEYS}/{key.public_id}")
    assert page.status_code == 200 and "What it may do" not in text_of(page)
    assert change(ada, key, name="other").status_code == 409
    assert rotate(ada, key, form="").headers["location"] == f"{KEYS}/{key.public_id}"
    assert ApiKey.objects.get(pk=key.pk).name == "k"


def test_ended_keys_are_listed_apart_and_let_nobody_in(ada: Client, person: Person) -> None:
    text = key_in(create(ada, "short-lived"))
    ApiKey.objects.filter(name="short-lived").update(expires_at=timezone.now())
    keys.known_keys.clear()
    assert not works(text)
    working, _, ended = text_of(ada.get("/account/")).partition("Keys that have ended")
    assert "short-lived" not in working and "short-lived" in ended and "Expired just now" in ended


# Rotation


def test_a_rotated_key_goes_on_for_a_while_beside_the_new_one(ada: Client) -> None:
    old_text = key_in(create(ada, "Nightly", scopes=["read"], concurrent="2"))
    old = ApiKey.objects.get(name="Nightly")
    form = form_of(ada, f"{KEYS}/{old.public_id}/rotate")
    page = rotate(ada, old, form, overlap="604800")
    new_text = key_in(page)
    assert "ends in 7 days" in text_of(page) and "no-store" in page.headers["cache-control"]
    assert works(old_text) and works(new_text)
    old.refresh_from_db()
    new = old.replaced_by
    assert new is not None
    assert (new.name, new.scopes, new.concurrent, new.expires_at) == ("Nightly", ["read"], 2, None)
    assert new.chain_id == old.chain_id == old.pk, "they share their limits"
    assert "replaced, ends in 7 days" in text_of(ada.get("/account/"))
    assert rotate(ada, old, form).status_code == 302, "a reload sends the same form"
    assert ApiKey.objects.filter(name="Nightly").count() == 2


def test_at_once_means_at_once(ada: Client) -> None:
    text = key_in(create(ada, "Leaked"))
    key = ApiKey.objects.get(name="Leaked")
    assert works(text)
    assert "no longer works" in text_of(rotate(ada, key, overlap="0"))
    answer = Client().get("/v1/conversations", headers={"authorization": f"Bearer {text}"})
    assert answer.status_code == 401
    assert "This API key was replaced by another, and ended at" in answer.json()["detail"]


def test_a_rotation_does_not_lengthen_a_life(ada: Client) -> None:
    key = made(ada, "k")
    end = timezone.now() + timedelta(hours=2)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=end)
    rotate(ada, key, overlap="604800", expiry="365")
    key.refresh_from_db()
    assert key.expires_at == end


@pytest.mark.parametrize(("expiry", "offered"), [("never", "never"), ("90", "90")])
def test_the_new_key_is_offered_as_long_a_life(ada: Client, expiry: str, offered: str) -> None:
    key = made(ada, "k", expiry=expiry)
    page = ada.get(f"{KEYS}/{key.public_id}/rotate").content.decode()
    assert f'<option value="{offered}" selected>' in page


def test_a_wrong_rotation_is_refused_in_words(ada: Client) -> None:
    key = made(ada, "k")
    for choices, said in (({"overlap": "1"}, "Choose when the old key ends."), ({"expiry": "date"}, "on which day")):
        answer = rotate(ada, key, **choices)
        assert answer.status_code == 400 and said in text_of(answer)
    page = rotate(ada, key, form="x", overlap="3600")
    assert page.status_code == 400 and "too old" in text_of(page)
    assert '<option value="3600" selected>' in page.content.decode()
    key.refresh_from_db()
    assert not key.is_replaced


def test_who_has_as_many_keys_as_may_be_can_rotate_them(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_ACTIVE_KEYS", 2)
    key = made(ada, "second")
    assert rotate(ada, key).status_code == 200


def test_rotating_again_and_again_does_not_make_keys_without_end(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_ACTIVE_KEYS", 2)
    key = made(ada, "k")  # the person has one already
    for _ in range(2):
        assert rotate(ada, key).status_code == 200
        key.refresh_from_db()
        assert key.replaced_by is not None
        key = key.replaced_by
    refused = rotate(ada, key)
    assert refused.headers["location"] == f"{KEYS}/{key.public_id}"
    assert "4 of your keys work, which is the most." in text_of(ada.get(refused.headers["location"]))
    assert rotate(ada, key, overlap="0").status_code == 200


def test_a_form_that_is_sent_twice_leads_to_the_key_that_it_made(ada: Client) -> None:
    """The second answer takes the place of the first, and with it the text: it must say how to get another."""
    form = form_of(ada)
    create(ada, "slow", form)
    key = ApiKey.objects.get(name="slow")
    answers = [create(ada, "slow", form)]
    rotation = form_of(ada, f"{KEYS}/{key.public_id}/rotate")
    rotate(ada, key, rotation, overlap="0")
    answers.append(rotate(ada, key, rotation, overlap="0"))
    new = ApiKey.objects.get(name="slow", replaced_by=None)
    for answer, made_then in zip(answers, (key, new), strict=True):
        assert answer.headers["location"] == f"{KEYS}/{made_then.public_id}"
    page = ada.get(f"{KEYS}/{new.public_id}")
    assert "sent before, and its key was made then" in text_of(page) and "rotate this key" in text_of(page)
    assert f"{KEYS}/{new.public_id}/rotate" in page.content.decode()
    assert ApiKey.objects.filter(name="slow").count() == 2
    assert key_in(rotate(ada, new))


def test_new_limits_hold_for_the_whole_chain(ada: Client) -> None:
    old = made(ada, "k", concurrent="9")
    rotate(ada, old)
    new = ApiKey.objects.get(replaced_by=None, name="k")
    change(ada, new, concurrent="1")
    assert {key.concurrent for key in ApiKey.objects.filter(name="k")} == {1}


# History


def test_what_was_done_to_a_key_is_written_down_and_shown(ada: Client, person: Person) -> None:
    ada.defaults["REMOTE_ADDR"] = "203.0.113.9"
    old = made(ada, "k", scopes=["chat", "read"])
    change(ada, old, scopes=["read"], tokens_per_minute="5000")
    change(ada, old, scopes=["read"], tokens_per_minute="5000")  # nothing changes
    rotate(ada, old)
    ada.post(f"{KEYS}/{old.public_id}/revoke")
    ada.post(f"{KEYS}/{old.public_id}/revoke")
    events = list(KeyEvent.objects.filter(key_id=old.pk).order_by("id"))
    assert [each.kind for each in events] == ["created", "changed", "rotated", "revoked"]
    assert {(each.actor_id, each.owner_id, each.via, each.address) for each in events} == {
        (person.user.pk, person.user.pk, "page", "203.0.113.9")
    }
    assert events[1].details == [["scopes", "chat, read", "read"], ["tokens a minute", "none", "5,000"]]
    told = history(ada, old)
    for words in (
        "Made by you on the account page, from 203.0.113.9",
        "scopes: chat, read → read",
        "tokens a minute: none → 5,000",
        f"replaced by: {ApiKey.objects.get(replaced_by=None, name='k').public_id}",
        "Revoked by you",
    ):
        assert words in told


def test_the_history_names_neither_the_staff_nor_their_address(ada: Client, person: Person, make_person: Any) -> None:
    keys.revoke_api_key(person.key, Actor(make_person("root@example.com").user.pk, Via.ADMIN, "198.51.100.1"))
    told = history(ada, person.key)
    assert "Revoked by whoever runs this site in the admin" in told
    assert "Made by a command on the server" in told
    assert "198.51.100.1" not in told and "root@" not in told


def test_the_address_is_the_one_that_trusted_proxies_name(ada: Client, settings: Any) -> None:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    ada.defaults["HTTP_X_FORWARDED_FOR"] = "6.6.6.6, 203.0.113.7"
    assert KeyEvent.objects.get(key_id=made(ada, "k").pk).address == "203.0.113.7"


@pytest.mark.parametrize("change_it", [lambda rows: rows.update(via="admin"), lambda rows: rows.delete()])
def test_the_history_is_append_only(person: Person, change_it: Any) -> None:
    with pytest.raises(DatabaseError, match="the history of API keys is append-only"), transaction.atomic():
        change_it(KeyEvent.objects.filter(key_id=person.key.pk))
    assert KeyEvent.objects.get(key_id=person.key.pk).via == "command"


def test_the_history_outlives_the_key(person: Person) -> None:
    key_id = person.key.pk
    person.organization.delete()
    assert not ApiKey.objects.filter(pk=key_id).exists()
    assert KeyEvent.objects.filter(key_id=key_id).count() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": ["everything"]},
        {"scopes": []},
        {"requests_per_minute": 0},
        {"tokens_per_minute": 0},
        {"concurrent": 0},
    ],
)
def test_the_database_refuses_what_makes_no_sense(person: Person, wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=person.key.pk).update(**wrong)
