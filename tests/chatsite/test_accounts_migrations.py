"""Who had an account before addresses were verified can still sign in."""

import importlib

import pytest
from allauth.account.models import EmailAddress
from django.apps import apps
from django.test import Client

from chatsite.accounts.models import User
from tests.chatsite.entering import NEW_PASSWORD, sign_in
from tests.conftest import Person

verify = importlib.import_module("chatsite.accounts.migrations.0003_verified_addresses").verify


@pytest.mark.django_db
def test_earlier_users_are_verified(person: Person) -> None:
    old = User(email="old@example.com")
    old.set_password(NEW_PASSWORD)
    old.save()
    pending = User.objects.create(email="pending@example.com")
    EmailAddress.objects.create(user=pending, email=pending.email, primary=True, verified=False)
    for _ in range(2):
        verify(apps, None)
    rows = EmailAddress.objects.order_by("email").values_list("email", "primary", "verified")
    assert list(rows) == [
        (person.user.email, True, True),
        ("old@example.com", True, True),
        ("pending@example.com", True, False),
    ]
    assert sign_in(Client(), old.email, NEW_PASSWORD).headers["location"] == "/"
