"""Organizations beyond the first that a person makes: without a plan, so that nobody multiplies what is free."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chatsite.accounts import members, organizations
from chatsite.accounts.models import Organization
from chatsite.accounts.protocol import COMMAND, Principal
from chatsite.accounts.roles import Role
from chatsite.database import run_db
from chatsite.ids import new_id
from quotas.errors import NoPlan
from quotas.models import Plan, Subscription
from quotas.protocol import Want
from quotas.selectors import aplan_of, known_plans, plan_of
from quotas.services import reserve, subscribe
from tests.admin_rows import signed_in as staff_client
from tests.chatsite.organizations import address, at_once, by, make_organization, signed_in
from tests.conftest import Person


async def may_use(person: Person, organization: Organization) -> bool:
    principal = Principal(person.user.pk, organization.pk)
    plan = await aplan_of(organization.pk)
    try:
        await reserve(principal, plan, {new_id(): Want(10)}, 30)
    except NoPlan:
        return False
    return True


@pytest.mark.django_db(transaction=True)
async def test_the_first_is_on_the_default_plan_and_the_others_await_one(person: Person) -> None:
    first, second, third = [await run_db(make_organization, person, name) for name in ("A", "B", "C")]
    usable = [await may_use(person, each) for each in (person.organization, first, second, third)]
    assert usable == [True, True, False, False]
    assert (await aplan_of(first.pk)).name == "free"
    assert (await aplan_of(second.pk)).name == "none"
    await run_db(subscribe, second.pk, "plus")
    assert await may_use(person, second)
    await run_db(Subscription.objects.filter(organization_id=second.pk).delete)
    known_plans.clear()
    assert not await may_use(person, second)


@pytest.mark.django_db(transaction=True)
def test_many_that_are_made_at_once_get_one_default_plan(person: Person) -> None:
    def make(name: str) -> Organization:
        return organizations.create(person.user, name, by(person.user))

    made = at_once(*[lambda name=name: make(name) for name in "ABCDEFGH"])
    assert all(isinstance(each, Organization) for each in made)
    assert sorted(plan_of(each.pk).missing for each in made) == [False, *[True] * 7]


@pytest.mark.django_db
def test_handing_an_organization_over_makes_no_room_for_another(person: Person, stranger: Person) -> None:
    first = make_organization(person, owner2=stranger)
    members.leave(first.pk, person.user.pk, by(person.user))
    assert plan_of(make_organization(person).pk).missing
    assert not plan_of(first.pk).missing  # it was the first that somebody made, and stays so
    assert not plan_of(make_organization(stranger).pk).missing  # who was given one, and has made none


@pytest.mark.django_db
def test_being_a_member_elsewhere_costs_nothing(person: Person, stranger: Person) -> None:
    for number in range(3):
        members.add(make_organization(stranger, f"Team {number}").pk, person.user, Role.MEMBER, COMMAND)
    assert not plan_of(make_organization(person).pk).missing


@pytest.mark.django_db
@pytest.mark.parametrize(("allowed", "missing"), [(0, [True, True]), (2, [False, False]), (-1, [True, True])])
def test_how_many_is_the_operators_choice(person: Person, settings: Any, allowed: int, missing: list[bool]) -> None:
    settings.ORGANIZATIONS_ON_DEFAULT_PLAN = allowed
    assert [plan_of(make_organization(person, name).pk).missing for name in "AB"] == missing
    assert not plan_of(person.organization.pk).missing


@pytest.mark.django_db
def test_the_pages_say_so_before_and_after(person: Person) -> None:
    client = signed_in(person)
    assert "It will have no plan" not in client.get("/organization/new").content.decode()
    make_organization(person)
    assert "It will have no plan" in client.get("/organization/new").content.decode()
    assert "No plan yet." in client.post("/organization/new", {"name": "Second"}, follow=True).content.decode()
    assert "has no plan yet" in client.get("/usage/").content.decode()
    made = Organization.objects.get(name="Second")
    subscribe(made.pk, "plus")
    assert "No plan yet." not in client.get(address(made)).content.decode()
    assert "has no plan yet" not in client.get("/usage/").content.decode()


@pytest.mark.django_db(transaction=True)
def test_no_limits_are_told_where_there_is_no_plan(person: Person) -> None:
    make_organization(person)
    second = make_organization(person, "Second")
    client = signed_in(person)
    client.post(address(second, "switch"))
    assert client.get("/v1/quota").json() == {"plan": "none", "limits": []}


@pytest.mark.django_db
def test_the_staff_finds_them_and_gives_them_a_plan(person: Person, make_person: Any) -> None:
    staff: Client = staff_client(make_person("root@example.com", superuser=True).user)
    first, second = make_organization(person, "First made"), make_organization(person, "Second made")
    listed = reverse("admin:accounts_organization_changelist")
    page = staff.get(listed, {"plan": "none"}).content.decode()
    assert "Second made" in page
    assert "First made" not in page
    give = f"{reverse('admin:quotas_subscription_add')}?organization={second.pk}"
    assert give in page
    assert staff.get(give).status_code == 200
    plan = Plan.objects.get(name="plus")
    assert staff.post(give, {"organization": second.pk, "plan": plan.pk}).status_code == 302
    assert not plan_of(second.pk).missing
    assert "Second made" in staff.get(listed, {"plan": "own"}).content.decode()
    assert "First made" in staff.get(listed, {"plan": "default"}).content.decode()
    assert first.name in staff.get(listed).content.decode()
