"""What was there before a migration is as good afterwards."""

import importlib

import pytest
from allauth.account.models import EmailAddress
from django.apps import apps
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from chatsite.accounts.models import ApiKey, Membership, Organization, User
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


@pytest.mark.django_db(transaction=True)
def test_earlier_keys_may_chat_and_read_and_are_chains_of_their_own(person: Person) -> None:
    """Back to before there were scopes, a second key then, and forth again."""
    executor = MigrationExecutor(connection)
    executor.migrate([("accounts", "0004_names")])
    earlier = executor.loader.project_state([("accounts", "0004_names")]).apps.get_model("accounts", "ApiKey")
    earlier.objects.create(user_id=person.user.pk, organization_id=person.organization.pk, prefix="sk-x", digest="x")
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    keys = list(ApiKey.objects.all())
    assert len(keys) == 2
    for key in keys:
        assert (key.chain_id, key.scopes, key.expires_at) == (key.pk, ["chat", "read"], None)
    assert Client().get("/v1/conversations", headers=person.headers).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_an_organization_that_nobody_shares_is_its_owner_s_own(person: Person, stranger: Person) -> None:
    """Back to before there were shared ones: Eve owns two, and an operator has put Ada into a third's."""
    third = User.objects.create(email="grace@example.com")
    shared, second = Organization.objects.create(name="Grace"), Organization.objects.create(name="Eve's other")
    Membership.objects.create(user=third, organization=shared, role="owner")
    Membership.objects.create(user=person.user, organization=shared, role="member")
    Membership.objects.create(user=stranger.user, organization=second, role="owner")
    executor = MigrationExecutor(connection)
    executor.migrate([("accounts", "0006_key_events_not_emptied")])
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    owned = dict(Organization.objects.values_list("pk", "personal_of_id"))
    assert owned == {
        person.organization.pk: person.user.pk,
        stranger.organization.pk: stranger.user.pk,
        second.pk: None,
        shared.pk: None,
    }
    person.key.refresh_from_db()
    assert person.key.is_working and not person.key.is_limited
