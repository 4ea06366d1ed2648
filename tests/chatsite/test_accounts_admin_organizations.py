"""Organizations in the admin: members by the rules, invitations and history to look at."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from chatsite.accounts.models import Invitation, Membership, Organization, OrganizationEvent
from tests.admin_rows import make_invited
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import make_organization, place_of, roles_in, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(make_person: Any) -> Person:
    return make_person("root@example.com", superuser=True)


@pytest.fixture
def staff(root: Person) -> Client:
    return signed_in(root)


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:accounts_{name}", args=args)


def change(client: Client, place: Membership, **values: Any) -> Any:
    return client.post(page("membership_change", place.pk), {"role": place.role, **values}, follow=True)


def test_a_member_is_added_changed_and_removed_and_it_is_written_down(
    staff: Client, root: Person, person: Person, stranger: Person
) -> None:
    acme = make_organization(person)
    form = {"user": stranger.user.pk, "organization": acme.pk, "role": "billing", "concurrent": "2"}
    assert staff.post(page("membership_add"), form).status_code == 302
    place = place_of(stranger, acme)
    assert (place.role, place.concurrent) == ("billing", 2)
    assert change(staff, place, role="admin", monthly_cost="12.50").status_code == 200
    assert place_of(stranger, acme).role == "admin"
    assert staff.post(page("membership_delete", place.pk), {"post": "yes"}).status_code == 302
    assert roles_in(acme) == {person.user.email: "owner"}
    found = OrganizationEvent.objects.filter(organization_id=acme.pk, via="admin").order_by("id")
    assert [each.kind for each in found] == ["joined", "limits", "role", "limits", "removed"]
    assert {each.actor_id for each in found} == {root.user.pk}
    told = text_of(signed_in(person).get(f"/organization/{acme.public_id}/"))
    assert "eve@example.com removed by whoever runs this site" in told and root.user.email not in told


def test_the_rules_hold_here_too(staff: Client, person: Person, stranger: Person) -> None:
    acme = make_organization(person)
    place, own = place_of(person, acme), place_of(person, person.organization)
    assert "keeps at least one owner" in text_of(change(staff, place, role="member"))
    answer = staff.post(page("membership_delete", place.pk), {"post": "yes"}, follow=True)
    assert "keeps at least one owner" in text_of(answer)
    assert "somebody&#x27;s own organization" in text_of(change(staff, own, role="member"))
    form = {"user": stranger.user.pk, "organization": person.organization.pk, "role": "member"}
    assert "somebody&#x27;s own organization" in text_of(staff.post(page("membership_add"), form, follow=True))
    assert roles_in(acme) == roles_in(person.organization) == {person.user.email: "owner"}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("concurrent", "0", "At least 1, or nothing."),
        ("monthly_cost", "0", "At least 0.01, or nothing."),
        ("monthly_tokens", "9" * 18, "At most 1,000,000,000,000."),
        ("tokens_per_minute", "1.5", "Enter a whole number."),
    ],
)
def test_limits_that_are_none_are_refused_in_words(
    staff: Client, person: Person, name: str, value: str, sentence: str
) -> None:
    place = place_of(person, make_organization(person))
    assert sentence in text_of(change(staff, place, **{name: value}))
    place.refresh_from_db()
    assert not place.is_limited


@pytest.mark.parametrize("value", ["\0", "x", "9" * 50, "%", ""])
def test_hand_made_members_are_refused_in_words(staff: Client, person: Person, value: str) -> None:
    whole = {"user": str(person.user.pk), "organization": str(person.organization.pk), "role": "member"}
    for name in whole:
        assert staff.post(page("membership_add"), {**whole, name: value}).status_code in (200, 400)
    assert Membership.objects.count() == 2


def test_a_new_name_of_an_organization_is_written_down(staff: Client, person: Person) -> None:
    acme = make_organization(person)
    form = {"name": "Acme & Co", "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
    assert staff.post(page("organization_change", acme.pk), form).status_code == 302
    event = OrganizationEvent.objects.filter(organization_id=acme.pk).latest("id")
    assert (event.kind, event.via, event.details) == ("renamed", "admin", [["name", "Acme", "Acme & Co"]])
    staff.post(page("organization_add"), {"name": "Without members"})
    made = Organization.objects.get(name="Without members")
    assert OrganizationEvent.objects.get(organization_id=made.pk).kind == "created"


def test_invitations_and_history_can_only_be_looked_at(staff: Client, person: Person) -> None:
    invitation = make_invited(person)
    shown = text_of(staff.get(page("invitation_change", invitation.pk)))
    assert (
        "grace@example.com" in shown
        and "pending" in shown
        and invitation.digest not in shown.replace(str(person.organization.pk), "", 2)
    )
    event = OrganizationEvent.objects.latest("id")
    shown = text_of(staff.get(page("organizationevent_change", event.pk)))
    assert "192.0.2.1" in shown and person.user.email in shown
    for name, row in (("invitation", invitation), ("organizationevent", event)):
        assert staff.get(page(f"{name}_add")).status_code == 403
        assert staff.post(page(f"{name}_change", row.pk), {}).status_code == 403
        assert staff.post(page(f"{name}_delete", row.pk), {"post": "yes"}).status_code == 403
    for state, count in (("pending", 1), ("accepted", 0), ("withdrawn", 0), ("expired", 0)):
        listed = staff.get(page("invitation_changelist"), {"state": state})
        assert listed.context["cl"].result_count == count, state
    assert Invitation.objects.count() == 1


def test_lists_find_by_any_id(staff: Client, person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    make_invited(person)
    for name, sought, count in (
        ("membership", acme.public_id, 2),
        ("membership", stranger.user.public_id, 2),
        ("invitation", person.organization.public_id, 1),
        ("invitation", person.user.public_id, 1),
        ("organizationevent", acme.public_id, 2),
        ("organizationevent", stranger.user.public_id, 1),
    ):
        listed = staff.get(page(f"{name}_changelist"), {"q": sought})
        assert listed.context["cl"].result_count == count, (name, sought)
    assert staff.get(page("membership_changelist"), {"limits": "yes"}).context["cl"].result_count == 0
    assert staff.get(page("organization_changelist"), {"personal_of__isempty": "1"}).context["cl"].result_count == 1


def test_who_may_only_look_changes_no_members(person: Person, stranger: Person) -> None:
    stranger.user.is_staff = True
    stranger.user.save()
    stranger.user.user_permissions.add(Permission.objects.get(codename="view_membership"))
    client, place = signed_in(stranger), place_of(person, make_organization(person))
    assert client.get(page("membership_change", place.pk)).status_code == 200
    assert client.post(page("membership_change", place.pk), {"role": "member"}).status_code == 403
    assert client.post(page("membership_delete", place.pk), {"post": "yes"}).status_code == 403
