"""What a key may be used for, how much and until when: chosen when it is made, and changed."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chatsite.accounts import keys
from chatsite.accounts.models import ApiKey
from tests.chatsite.entering import text_of
from tests.chatsite.key_pages import KEYS, NEW, ada, change, create, key_in, made, rotate, works
from tests.conftest import Person

__all__ = ["ada"]
pytestmark = pytest.mark.django_db


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
