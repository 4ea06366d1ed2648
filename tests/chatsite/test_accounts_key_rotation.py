"""A key in place of another, and what was done to keys."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from chatsite.accounts import keys
from chatsite.accounts.models import ApiKey, KeyEvent
from chatsite.accounts.protocol import Actor, Via
from tests.chatsite.entering import text_of
from tests.chatsite.key_pages import KEYS, ada, change, create, form_of, history, key_in, made, rotate, works
from tests.conftest import Person

__all__ = ["ada"]
pytestmark = pytest.mark.django_db


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
