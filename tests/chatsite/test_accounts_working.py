"""Where somebody works: the organization of a session, of a key, and the limits that a member has there."""

from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chatsite import notices
from chatsite.accounts import authentication, keys, members, services
from chatsite.accounts.authentication import authenticate_scope
from chatsite.accounts.keys import Terms
from chatsite.accounts.models import ApiKey, Membership, User
from chatsite.accounts.protocol import COMMAND, KeyLimits, MemberLimits, Principal
from chatsite.accounts.roles import Role
from chatsite.accounts.selectors import key_holder, personal_organization
from chatsite.database import run_db
from chatsite.errors import NotAuthenticated
from chatsite.ids import new_id
from chatsite.redis import sync_client
from tests.asgi_client import http_scope
from tests.chatsite.organizations import NO_LIMITS, address, by, make_organization, place_of, signed_in
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
LIMITS = {
    "requests_per_minute": 10,
    "tokens_per_minute": 1000,
    "concurrent": 2,
    "monthly_tokens": 5_000_000_000,
    "monthly_cost": Decimal("20.00"),
}


def cookie(client: Client) -> str:
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def principal(client: Client) -> Principal:
    return authentication._session_principal(cookie(client))


def told(person: Person) -> list[bytes]:
    return [fields[b"c"] for _, fields in sync_client().xrange(notices.stream_key(person.user.pk))]


@pytest.mark.django_db(transaction=True)
def test_a_session_works_in_one_s_own_until_it_switches(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    here, there = signed_in(person), signed_in(person)
    assert principal(here).organization_id == person.organization.pk
    here.post(address(acme, "switch"))
    assert principal(here) == replace(person.session_principal, organization_id=acme.pk)
    assert principal(there).organization_id == person.organization.pk, "another session is another place"
    assert told(person)[-1] == str(notices.SESSIONS).encode()
    here.post(address(person.organization, "switch"))
    assert principal(here).organization_id == person.organization.pk


def test_who_is_removed_is_in_their_own_at_once(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    client = signed_in(person)
    client.post(address(acme, "switch"))
    members.remove(acme.pk, person.user.pk, by(stranger.user))
    assert principal(client) == person.session_principal
    assert client.get("/organization/").headers["location"] == address(person.organization)
    assert client.get("/account/").status_code == 200, "the session goes on"


@pytest.mark.django_db(transaction=True)
def test_open_pages_of_who_is_removed_are_told(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    before = len(told(person))
    members.change(acme.pk, person.user.pk, Role.MEMBER, {**NO_LIMITS, "concurrent": 1}, by(stranger.user))
    members.remove(acme.pk, person.user.pk, by(stranger.user))
    assert told(person)[before:] == [str(notices.SESSIONS).encode()] * 2


@pytest.mark.parametrize("kept", ["x", str(new_id()), 17, None, ["a"]])
def test_what_a_session_may_hold_besides_leads_home(person: Person, kept: Any) -> None:
    client = signed_in(person)
    session = client.session
    session[services.ORGANIZATION] = kept
    session.save()
    assert principal(client) == person.session_principal


def test_signing_in_anew_begins_in_one_s_own(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    client = signed_in(person)
    client.post(address(acme, "switch"))
    client.post("/accounts/logout/")
    client.post("/accounts/login/", {"login": person.user.email, "password": PASSWORD})
    assert principal(client).organization_id == person.organization.pk


def test_a_key_belongs_where_it_was_made(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    client = signed_in(person)
    client.post(address(acme, "switch"))
    form = client.get("/account/keys/new").content.decode().partition('name="form" value="')[2].partition('"')[0]
    client.post("/account/keys/new", {"name": "At work", "scopes": ["read"], "expiry": "never", "form": form})
    key = ApiKey.objects.get(name="At work")
    assert key.organization_id == acme.pk


def test_somebody_without_any_organization_gets_one_of_their_own(person: Person) -> None:
    user = User.objects.create_user("lone@example.com", PASSWORD)
    client = Client()
    client.force_login(user)
    found = principal(client).organization_id
    own = personal_organization(user)
    assert own is not None and own.pk == found and own.personal_of_id == user.pk
    Membership.objects.filter(user=user).delete()
    assert principal(client).organization_id == found, "the same, were it ever left"


# Limits


def test_the_limits_of_a_member_come_with_session_and_key(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    _, secret = keys.create_api_key(person.user, acme, "work")
    members.change(acme.pk, person.user.pk, Role.MEMBER, LIMITS, by(stranger.user))
    expected = MemberLimits(person.user.pk, person.user.email, **LIMITS)
    client = signed_in(person)
    assert principal(client).member_limits is None, "not in one's own"
    client.post(address(acme, "switch"))
    assert principal(client).member_limits == expected
    holder = key_holder(keys.digest_of(secret))
    assert holder is not None and holder.principal.member_limits == expected
    other = key_holder(person.key.digest)
    assert other is not None and other.principal.member_limits is None


def test_the_limits_of_each_member_are_their_own(person: Person, stranger: Person) -> None:
    """A key's member is found among several of its organization."""
    acme = make_organization(stranger, member=person)
    for each, limit in ((person, 1), (stranger, 2)):
        Membership.objects.filter(user=each.user, organization=acme).update(concurrent=limit)
    for each, limit in ((person, 1), (stranger, 2)):
        _, secret = keys.create_api_key(each.user, acme, "work")
        holder = key_holder(keys.digest_of(secret))
        assert holder is not None and holder.principal.member_limits is not None
        assert (holder.principal.member_limits.user_id, holder.principal.member_limits.concurrent) == (
            each.user.pk,
            limit,
        )


@pytest.mark.django_db(transaction=True)
async def test_changed_limits_count_at_once_here(person: Person, stranger: Person) -> None:
    acme = await run_db(partial(make_organization, stranger, member=person))
    _, secret = await run_db(keys.create_api_key, person.user, acme, "work")
    scope = http_scope("GET", "/", {"authorization": f"Bearer {secret}"})
    assert (await authenticate_scope(scope)).principal.member_limits is None
    await run_db(members.change, acme.pk, person.user.pk, Role.MEMBER, LIMITS, by(stranger.user))
    limits = (await authenticate_scope(scope)).principal.member_limits
    assert limits is not None and limits.monthly_cost == Decimal("20.00")
    await run_db(members.remove, acme.pk, person.user.pk, by(stranger.user))
    with pytest.raises(NotAuthenticated):
        await authenticate_scope(scope)


def test_the_limits_of_a_key_have_months_too(person: Person) -> None:
    terms = Terms("test", monthly_tokens=7, monthly_cost=Decimal("0.50"))
    keys.change_api_key(person.user, person.key.pk, terms, COMMAND)
    holder = key_holder(person.key.digest)
    assert holder is not None and holder.principal.key_limits == KeyLimits(
        person.key.chain_id, "test", monthly_tokens=7, monthly_cost=Decimal("0.50")
    )


def test_who_calls_costs_as_many_queries_as_before(person: Person, stranger: Person) -> None:
    acme = make_organization(stranger, member=person)
    members.change(acme.pk, person.user.pk, Role.MEMBER, LIMITS, by(stranger.user))
    _, secret = keys.create_api_key(person.user, acme, "work")
    client = signed_in(person)
    client.post(address(acme, "switch"))
    principal(client)
    with CaptureQueriesContext(connection) as asked:
        principal(client)
    assert len(asked) == 2, "the user, and where they are"
    digest = keys.digest_of(secret)
    with CaptureQueriesContext(connection) as asked:
        key_holder(digest)
    assert len(asked) == 1
    assert str(asked[0]["sql"]).count('JOIN "accounts_membership"') == 1
    assert place_of(person, acme).is_limited
