"""Background work on accounts."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from chatsite.accounts import tasks
from tests.conftest import Person


@pytest.mark.django_db
def test_sessions_that_have_expired_are_cleared_out(person: Person) -> None:
    clients = [Client(), Client()]
    for client in clients:
        client.force_login(person.user)
    old, kept = (client.session.session_key for client in clients)
    Session.objects.filter(session_key=old).update(expire_date=timezone.now() - timedelta(days=1))
    tasks.forget_old_sessions()
    assert set(Session.objects.values_list("session_key", flat=True)) == {kept}
