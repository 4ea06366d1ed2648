"""Owners hear of keys that are about to end: once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.db import connection
from django.utils import timezone

from chatsite.accounts import expiry, keys, tasks
from chatsite.accounts.keys import Terms
from chatsite.accounts.models import ApiKey
from chatsite.accounts.protocol import COMMAND
from chatsite.ids import new_id
from tests.conftest import Person

pytestmark = pytest.mark.django_db


def ending(person: Person, *, days: float = 3, life: float = 90, name: str = "Nightly report") -> ApiKey:
    """A key that was made for `life` days, of which `days` are left."""
    end = timezone.now() + timedelta(days=days)
    key, _ = keys.create_api_key(person.user, person.organization, Terms(name, expires_at=end))
    ApiKey.objects.filter(pk=key.pk).update(created_at=end - timedelta(days=life))
    return key


def test_its_owner_is_told_once(person: Person, settings: Any) -> None:
    settings.SITE_URL = "https://chat.example.org"
    key = ending(person)
    tasks.tell_of_expiring_keys()
    tasks.tell_of_expiring_keys()
    (sent,) = mail.outbox
    assert sent.to == [person.user.email]
    assert sent.subject == f"Your API key “Nightly report” expires on {key.expires_at:%Y-%m-%d}"
    assert f"{key.prefix}…" in sent.body and f"{key.expires_at:%Y-%m-%d %H:%M} UTC" in sent.body
    assert f"https://chat.example.org/account/keys/{key.public_id}" in sent.body


def test_without_an_address_of_the_site_there_is_no_link(person: Person) -> None:
    ending(person)
    expiry.tell_owners()
    assert "/account/keys" not in mail.outbox[0].body


def test_of_other_keys_nobody_is_told(person: Person, make_person: Any) -> None:
    ending(person, days=8)
    ending(person, days=-1)
    ending(person, life=5, name="made for five days")
    keys.revoke_api_key(ending(person, name="revoked"))
    replaced = ending(person, name="replaced")
    keys.rotate_api_key(person.user, replaced.pk, new_id(), timedelta(days=1), None, COMMAND)
    disabled = make_person("gone@example.com")
    ending(disabled)
    disabled.user.is_active = False
    disabled.user.save()
    assert (expiry.tell_owners(), mail.outbox) == (0, [])


def test_of_another_end_they_are_told_again(person: Person) -> None:
    key = ending(person)
    expiry.tell_owners()
    later: datetime = timezone.now() + timedelta(days=5)
    keys.change_api_key(person.user, key.pk, Terms(key.name, expires_at=later), COMMAND)
    assert (expiry.tell_owners(), len(mail.outbox)) == (1, 2)


class NoServer(BaseEmailBackend):
    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError


def test_a_mail_that_cannot_be_sent_is_tried_again(person: Person, settings: Any) -> None:
    key = ending(person)
    works, settings.EMAIL_BACKEND = settings.EMAIL_BACKEND, f"{__name__}.NoServer"
    assert expiry.tell_owners() == 0
    key.refresh_from_db()
    assert key.expiry_told_at is None
    settings.EMAIL_BACKEND = works
    assert expiry.tell_owners() == 1


@pytest.mark.django_db(transaction=True)
def test_two_at_once_tell_nobody_twice(person: Person) -> None:
    for number in range(6):
        ending(person, name=f"key {number}")

    def run() -> int:
        try:
            return expiry.tell_owners()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        told = [job.result() for job in [pool.submit(run), pool.submit(run)]]
    assert sum(told) == len(mail.outbox) == 6
    assert len({sent.subject for sent in mail.outbox}) == 6
