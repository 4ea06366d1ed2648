"""Who is in an organization: roles, limits, leaving, being removed, and that an owner always stays."""

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from chatsite.accounts import keys, members, organizations
from chatsite.accounts.errors import (
    LastOwner,
    NotAllowed,
    OrganizationFull,
    PersonalOrganization,
    TooManyOrganizations,
)
from chatsite.accounts.keys import Terms
from chatsite.accounts.models import KeyEvent, Membership, OrganizationEvent
from chatsite.accounts.protocol import COMMAND, Actor, Via
from chatsite.accounts.roles import Role
from chatsite.errors import NotFound
from chatsite.ids import new_id
from tests.chatsite.organizations import (
    NO_LIMITS,
    at_once,
    by,
    events,
    make_organization,
    place_of,
    roles_in,
)
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def third(make_person: Any) -> Person:
    return make_person("grace@example.com")


def test_whoever_makes_an_organization_owns_it(person: Person) -> None:
    made = organizations.create(person.user, "Acme", by(person.user))
    assert roles_in(made) == {person.user.email: "owner"} and not made.is_personal
    (event,) = OrganizationEvent.objects.filter(organization_id=made.pk)
    assert (event.kind, event.actor_id, event.member_id) == ("created", person.user.pk, person.user.pk)
    assert (event.details, event.address) == ([["name", "", "Acme"]], "192.0.2.1")


def test_nobody_makes_any_number_of_them(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(organizations, "MADE_PER_MONTH", 2)
    first = make_organization(person)
    make_organization(person)
    with pytest.raises(TooManyOrganizations, match="2 organizations in 30 days"):
        make_organization(person)
    Membership.objects.filter(organization=first).delete()
    with pytest.raises(TooManyOrganizations):  # each that was made had a plan of its own
        make_organization(person)
    monkeypatch.setattr(organizations, "MAX_ORGANIZATIONS", 2)
    with pytest.raises(TooManyOrganizations, match="Leave one first"):
        make_organization(person)


def test_a_member_gets_another_role_and_limits(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    wanted = {**NO_LIMITS, "concurrent": 2, "monthly_tokens": 5_000_000_000, "monthly_cost": Decimal("12.50")}
    members.change(acme.pk, stranger.user.pk, Role.BILLING, wanted, by(person.user))
    place = place_of(stranger, acme)
    assert (place.role, place.concurrent, place.monthly_tokens) == ("billing", 2, 5_000_000_000)
    assert place.monthly_cost == Decimal("12.50")
    role, limits = OrganizationEvent.objects.filter(organization_id=acme.pk).order_by("id")[2:]
    assert (role.kind, role.details) == ("role", [["role", "member", "billing"]])
    assert limits.details == [
        ["replies at once", "none", "2"],
        ["tokens a month", "none", "5,000,000,000"],
        ["cost a month", "none", "12.50 USD"],
    ]
    members.change(acme.pk, stranger.user.pk, Role.BILLING, wanted, by(person.user))
    assert events(acme) == ["created", "joined", "role", "limits"], "nothing has changed, and nothing is written"


@pytest.mark.parametrize("name", NO_LIMITS)
@pytest.mark.parametrize("value", [0, -1])
def test_the_database_refuses_limits_that_are_none(person: Person, name: str, value: int) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.filter(user=person.user).update(**{name: value})
    with pytest.raises(IntegrityError), transaction.atomic():
        person.user.api_keys.update(**{name: value})


def test_an_admin_manages_all_but_owners(person: Person, stranger: Person, third: Person) -> None:
    acme = make_organization(person, admin=stranger, member=third)
    admin = by(stranger.user)
    members.change(acme.pk, third.user.pk, Role.ADMIN, NO_LIMITS, admin)
    with pytest.raises(NotAllowed):
        members.change(acme.pk, third.user.pk, Role.OWNER, NO_LIMITS, admin)
    with pytest.raises(NotAllowed):
        members.change(acme.pk, stranger.user.pk, Role.OWNER, NO_LIMITS, admin)
    with pytest.raises(NotAllowed):
        members.change(acme.pk, person.user.pk, Role.OWNER, {**NO_LIMITS, "concurrent": 1}, admin)
    with pytest.raises(NotAllowed):
        members.remove(acme.pk, person.user.pk, admin)
    members.remove(acme.pk, third.user.pk, admin)
    assert roles_in(acme) == {person.user.email: "owner", stranger.user.email: "admin"}


@pytest.mark.parametrize("role", [Role.MEMBER, Role.BILLING])
def test_who_does_not_manage_changes_nothing(person: Person, stranger: Person, third: Person, role: Role) -> None:
    acme = make_organization(person, **{str(role): stranger, "member2": third})
    before, mine = roles_in(acme), by(stranger.user)
    for work in (
        partial(members.change, acme.pk, third.user.pk, Role.ADMIN, NO_LIMITS),
        partial(members.change, acme.pk, stranger.user.pk, Role.OWNER, NO_LIMITS),
        partial(members.remove, acme.pk, third.user.pk),
        partial(organizations.rename, acme.pk, "Mine"),
    ):
        with pytest.raises(NotAllowed):
            work(mine)
    assert roles_in(acme) == before


def test_s32_somebody_else_s_organization_is_not_found(person: Person, stranger: Person) -> None:
    acme, mine = make_organization(person), by(stranger.user)
    for work in (
        partial(members.change, acme.pk, person.user.pk, Role.MEMBER, NO_LIMITS, mine),
        partial(members.remove, acme.pk, person.user.pk, mine),
        partial(members.leave, acme.pk, stranger.user.pk, mine),
        partial(members.revoke_key, acme.pk, person.user.pk, person.key.pk, mine),
        partial(organizations.rename, acme.pk, "Mine", mine),
        partial(members.remove, new_id(), person.user.pk, mine),
        partial(members.change, acme.pk, stranger.user.pk, Role.MEMBER, NO_LIMITS, by(person.user)),
    ):
        with pytest.raises(NotFound):
            work()
    assert roles_in(acme) == {person.user.email: "owner"}


def test_the_last_owner_stays(person: Person, stranger: Person) -> None:
    acme, mine = make_organization(person, admin=stranger), by(person.user)
    for work in (
        partial(members.leave, acme.pk, person.user.pk, mine),
        partial(members.remove, acme.pk, person.user.pk, mine),
        partial(members.change, acme.pk, person.user.pk, Role.ADMIN, NO_LIMITS, mine),
    ):
        with pytest.raises(LastOwner):
            work()
    members.change(acme.pk, stranger.user.pk, Role.OWNER, NO_LIMITS, mine)
    members.leave(acme.pk, person.user.pk, mine)
    assert roles_in(acme) == {stranger.user.email: "owner"}
    assert events(acme) == ["created", "joined", "role", "left"]


def test_an_owner_who_is_disabled_does_not_count(person: Person, stranger: Person) -> None:
    acme = make_organization(person, owner2=stranger)
    stranger.user.is_active = False
    stranger.user.save()
    with pytest.raises(LastOwner):
        members.leave(acme.pk, person.user.pk, by(person.user))


def test_a_personal_organization_is_neither_shared_nor_left(person: Person, stranger: Person) -> None:
    own, mine = person.organization, by(person.user)
    assert own.is_personal
    for work in (
        partial(members.add, own.pk, stranger.user, Role.MEMBER, COMMAND),
        partial(members.leave, own.pk, person.user.pk, mine),
        partial(members.remove, own.pk, person.user.pk, mine),
        partial(members.change, own.pk, person.user.pk, Role.MEMBER, NO_LIMITS, COMMAND),
    ):
        with pytest.raises(PersonalOrganization):
            work()
    assert roles_in(own) == {person.user.email: "owner"}


def test_an_organization_has_room_for_so_many(person: Person, stranger: Person, monkeypatch: Any) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 1)
    acme = make_organization(person)
    with pytest.raises(OrganizationFull):
        members.add(acme.pk, stranger.user, Role.MEMBER, COMMAND)


def test_who_is_removed_loses_the_keys_of_that_organization_alone(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    lost, _ = keys.create_api_key(stranger.user, acme, "work")
    members.remove(acme.pk, stranger.user.pk, by(person.user))
    lost.refresh_from_db()
    stranger.key.refresh_from_db()
    assert lost.revoked_at is not None and stranger.key.revoked_at is None
    event = KeyEvent.objects.get(key_id=lost.pk, kind="revoked")
    assert (event.actor_id, event.via) == (person.user.pk, "page")
    with pytest.raises(NotFound):  # a form that lay open makes no key there
        keys.issue_api_key(stranger.user, acme, Terms("late"), new_id(), by(stranger.user))


def test_a_manager_revokes_a_member_s_key_of_this_organization_only(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    key, _ = keys.create_api_key(stranger.user, acme, "work")
    with pytest.raises(NotFound):
        members.revoke_key(acme.pk, stranger.user.pk, stranger.key.pk, by(person.user))
    with pytest.raises(NotAllowed):
        members.revoke_key(acme.pk, stranger.user.pk, key.pk, by(stranger.user))
    members.revoke_key(acme.pk, stranger.user.pk, key.pk, by(person.user))
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_staff_may_what_owners_may(person: Person, stranger: Person, third: Person) -> None:
    acme, staff = make_organization(person), Actor(third.user.pk, Via.ADMIN)
    members.add(acme.pk, stranger.user, Role.OWNER, staff)
    members.remove(acme.pk, person.user.pk, staff)
    assert roles_in(acme) == {stranger.user.email: "owner"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["leave", "remove each other", "step down"])
def test_two_owners_who_go_at_once_leave_one(person: Person, stranger: Person, way: str) -> None:
    acme = make_organization(person, owner2=stranger)
    ada, eve = person.user, stranger.user
    jobs = {
        "leave": (partial(members.leave, acme.pk, ada.pk, by(ada)), partial(members.leave, acme.pk, eve.pk, by(eve))),
        "remove each other": (
            partial(members.remove, acme.pk, eve.pk, by(ada)),
            partial(members.remove, acme.pk, ada.pk, by(eve)),
        ),
        "step down": (
            partial(members.change, acme.pk, ada.pk, Role.ADMIN, NO_LIMITS, by(ada)),
            partial(members.change, acme.pk, eve.pk, Role.ADMIN, NO_LIMITS, by(eve)),
        ),
    }[way]
    answers = at_once(*jobs)
    refused = [each for each in answers if isinstance(each, Exception)]
    assert len(refused) == 1 and isinstance(refused[0], LastOwner | NotFound), answers
    assert list(roles_in(acme).values()).count("owner") == 1


@pytest.mark.django_db(transaction=True)
def test_a_key_is_not_made_while_its_owner_is_removed(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    at_once(
        partial(keys.issue_api_key, stranger.user, acme, Terms("late"), new_id(), by(stranger.user)),
        partial(members.remove, acme.pk, stranger.user.pk, by(person.user)),
    )
    assert not stranger.user.api_keys.filter(organization=acme, revoked_at=None).exists()


def test_what_was_done_cannot_be_changed(person: Person) -> None:
    acme = make_organization(person)
    found = OrganizationEvent.objects.filter(organization_id=acme.pk)
    for work in (found.delete, partial(found.update, kind="left")):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            work()
