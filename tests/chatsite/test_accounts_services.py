"""Users, their organizations and their keys."""

import re

import pytest
from allauth.account.models import EmailAddress
from django.db import IntegrityError, connection, transaction

from chatsite.accounts import services
from chatsite.accounts.models import ApiKey, Membership, Organization, User
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db


def test_a_new_user_owns_an_organization() -> None:
    user = services.create_user("Ada@Example.COM", PASSWORD, name="Ada")
    membership = Membership.objects.get(user=user)
    assert membership.role == Membership.Role.OWNER
    assert services.personal_organization(user) == membership.organization
    assert user.check_password(PASSWORD)
    assert not user.is_staff


def test_a_superuser_is_made_the_same_way() -> None:
    user = services.create_user("root@example.com", PASSWORD, superuser=True)
    assert user.is_superuser and user.is_staff
    assert Organization.objects.count() == 1


def test_a_taken_address_leaves_nothing_behind(person: Person) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        services.create_user(person.user.email, PASSWORD)
    assert Organization.objects.count() == 1


def test_a_user_that_came_another_way_gets_an_organization_once() -> None:
    user = User.objects.create_superuser("root@example.com", PASSWORD)
    first = services.personal_organization(user)
    assert services.personal_organization(user) == first
    assert Membership.objects.filter(user=user).count() == 1


def test_the_personal_organization_is_the_first_owned_one(person: Person, stranger: Person) -> None:
    Membership.objects.create(user=person.user, organization=stranger.organization, role=Membership.Role.MEMBER)
    assert services.personal_organization(person.user) == person.organization


def test_s33_only_a_hash_and_a_prefix_of_a_key_are_stored(person: Person) -> None:
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", person.secret)
    assert person.key.prefix == person.secret[:8]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', [f"%{person.secret[8:]}%"])
            assert cursor.fetchone() == (0,), table
    assert person.secret[8:] not in f"{person.key} {person.key!r} {vars(person.key)}"


def test_keys_are_never_the_same(person: Person) -> None:
    texts = {services.create_api_key(person.user, person.organization, "k")[1] for _ in range(50)}
    assert len(texts) == 50


def test_revoking_twice_keeps_the_first_time(person: Person) -> None:
    services.revoke_api_key(person.key)
    first = person.key.revoked_at
    services.revoke_api_key(person.key)
    assert first is not None
    assert ApiKey.objects.get(pk=person.key.pk).revoked_at == first


def test_addresses_are_one_in_any_case(person: Person) -> None:
    assert User.objects.get_by_natural_key("ADA@example.com") == person.user
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.bulk_create([User(email="ADA@example.com")])
    other = User(email="Bea@Example.COM")
    other.full_clean(exclude=["password"])
    assert other.email == "bea@example.com"


def test_a_long_address_makes_an_organization_all_the_same() -> None:
    user = services.create_user(f"{'x' * 200}@example.com", PASSWORD)
    assert services.personal_organization(user).name == "x" * 150


def test_what_an_operator_changes_is_verified(person: Person, stranger: Person) -> None:
    EmailAddress.objects.create(user=stranger.user, email="ada@new.example")
    person.user.email = "ada@new.example"
    person.user.save()
    services.settle_user(person.user)
    rows = EmailAddress.objects.filter(user=person.user).values_list("email", "primary", "verified")
    assert list(rows) == [("ada@new.example", True, True)]
