"""The pages of an organization: what each role sees, what may be sent, and S32 on every route."""

import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern

from chatsite.accounts import keys, organizations
from chatsite.accounts.models import Invitation, Membership, Organization
from chatsite.accounts.organization_urls import urlpatterns
from chatsite.ids import new_id
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import address, by, events, make_organization, place_of, roles_in, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def third(make_person: Any) -> Person:
    return make_person("grace@example.com")


def section(client: Client, organization: Organization) -> str:
    answer = client.get(address(organization))
    assert answer.status_code == 200
    return text_of(answer)


def member_page(organization: Organization, person: Person, *more: str) -> str:
    return address(organization, "members", person.user.public_id, *more)


# S32


ROUTES = [str(each.pattern) for each in urlpatterns if isinstance(each, URLPattern) and "<" in str(each.pattern)]
OF_ORGANIZATION = [each for each in ROUTES if each.startswith("<str:organization>")]


def test_the_table_has_every_route() -> None:
    assert len(OF_ORGANIZATION) >= 9
    assert set(ROUTES) - set(OF_ORGANIZATION) == {"invitations/<str:token>"}


@pytest.mark.parametrize("route", OF_ORGANIZATION)
@pytest.mark.parametrize("method", ["get", "post"])
def test_s32_somebody_else_s_organization_is_not_found(
    person: Person, stranger: Person, third: Person, route: str, method: str
) -> None:
    acme = make_organization(person, member=third)
    signed_in(person).post(address(acme, "invite"), {"email": "bea@example.com", "role": "member"})
    key, _ = keys.create_api_key(third.user, acme, "work")
    names = {
        "organization": acme.public_id,
        "member": third.user.public_id,
        "key": key.public_id,
        "invitation": Invitation.objects.get().public_id,
    }
    before = state()
    client = signed_in(stranger)
    for wrong in (acme.public_id, f"org_{new_id()}", "org_x", str(acme.pk), acme.public_id.upper()):
        path = filled(route, {**names, "organization": wrong})
        answer = getattr(client, method)(path, {"name": "Mine", "email": "eve@example.com", "role": "owner"})
        assert answer.status_code == (404 if method in methods_of(route) else 405), (path, answer.status_code)
        assert "Acme" not in text_of(answer)
        assert getattr(Client(), method)(path).status_code in (302, 405)
    assert state() == before


@pytest.mark.parametrize("route", [each for each in OF_ORGANIZATION if len(re.findall("<", each)) > 1])
def test_s32_what_belongs_to_another_organization_is_not_found_in_one_s_own(
    person: Person, stranger: Person, third: Person, route: str
) -> None:
    acme, mine = make_organization(person, member=third), make_organization(stranger, "Mine")
    signed_in(person).post(address(acme, "invite"), {"email": "bea@example.com", "role": "member"})
    key, _ = keys.create_api_key(third.user, acme, "work")
    invitation = Invitation.objects.get()
    client, before = signed_in(stranger), state()
    for user in (third.user.public_id, stranger.user.public_id):  # of another, and one's own with another's key
        if user == stranger.user.public_id and "<str:key>" not in route:
            continue
        names = {"member": user, "key": key.public_id, "invitation": invitation.public_id}
        path = filled(route, {**names, "organization": mine.public_id})
        assert client.post(path, {"role": "member"}).status_code == 404, path
    names = {"member": f"user_{new_id()}", "key": "key_x", "invitation": "x", "organization": mine.public_id}
    assert client.post(filled(route, names)).status_code == 404
    assert state() == before


def methods_of(route: str) -> set[str]:
    if route == "<str:organization>/":
        return {"get"}
    asks_first = route.endswith(("/leave", "/remove", "members/<str:member>"))
    return {"get", "post"} if asks_first else {"post"}


def filled(route: str, names: dict[str, str]) -> str:
    return "/organization/" + re.sub(r"<str:(\w+)>", lambda found: names[found[1]], route)


def state() -> Any:
    return (
        list(Membership.objects.order_by("id").values_list()),
        list(Organization.objects.order_by("id").values_list()),
        list(Invitation.objects.order_by("id").values_list()),
    )


@pytest.mark.parametrize("role", ["member", "billing"])
def test_who_does_not_manage_is_told_so_and_sees_less(person: Person, stranger: Person, role: str) -> None:
    acme = make_organization(person, **{role: stranger})
    client = signed_in(stranger)
    page = section(client, acme)
    assert person.user.email in page and "Manage" not in page
    assert all(each not in page for each in ("Invitations", "History", "Save name"))
    for path, method in (
        (address(acme, "name"), "post"),
        (address(acme, "invite"), "post"),
        (member_page(acme, person), "get"),
        (member_page(acme, stranger), "post"),
        (member_page(acme, person, "remove"), "post"),
    ):
        answer = getattr(client, method)(path, {"name": "Mine", "role": "owner", "email": "bea@example.com"})
        assert answer.status_code == 403 and "Your role in this organization does not allow this." in text_of(answer)
    assert roles_in(acme) == {person.user.email: "owner", stranger.user.email: role}


# The pages


def test_one_s_own_organization_can_be_renamed_and_nothing_else(person: Person) -> None:
    client = signed_in(person)
    assert client.get("/organization/").headers["location"] == address(person.organization)
    page = section(client, person.organization)
    assert "This one is yours alone" in page and "your own" in page
    assert all(each not in page for each in ("Members", "Invitations", "Leave"))
    client.post(address(person.organization, "name"), {"name": "Ada's desk"})
    assert "The name is saved." in section(client, person.organization)
    person.organization.refresh_from_db()
    assert person.organization.name == "Ada's desk"
    for path in ("leave", f"members/{person.user.public_id}/remove"):
        assert client.post(address(person.organization, path)).status_code in (302, 409)
    assert roles_in(person.organization) == {person.user.email: "owner"}


@pytest.mark.parametrize("name", ["", " ", "x" * 151, "a\nb", "\u202eabc", "\u200b", "a\0b"])
def test_names_that_cannot_be_shown_are_refused(person: Person, name: str) -> None:
    client = signed_in(person)
    for path in (address(person.organization, "name"), "/organization/new"):
        answer = client.post(path, {"name": name})
        assert answer.status_code == 400 and "field-error" in answer.content.decode()
    assert Organization.objects.count() == 1


def test_a_new_organization_is_where_one_works_from_then_on(person: Person) -> None:
    client = signed_in(person)
    assert "Create organization" in text_of(client.get("/organization/new"))
    answer = client.post("/organization/new", {"name": "Acme <b>"})
    made = Organization.objects.get(name="Acme <b>")
    assert answer.headers["location"] == address(made)
    page = section(client, made)
    assert "You work in Acme &lt;b&gt; now." in page and "Members 1" in page
    assert client.get("/organization/").headers["location"] == address(made)


def test_too_many_organizations_are_refused_in_words(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(organizations, "MADE_PER_MONTH", 0)
    answer = signed_in(person).post("/organization/new", {"name": "Acme"})
    assert answer.status_code == 409 and "which is the most" in text_of(answer)


def test_a_member_s_role_and_limits_on_their_page(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    client = signed_in(person)
    page = text_of(client.get(member_page(acme, stranger)))
    assert "Role and limits" in page and "No key of this organization" in page
    form = {"role": "admin", "requests_per_minute": "10", "monthly_cost": "12.5", "monthly_tokens": "1000000"}
    assert client.post(member_page(acme, stranger), form).headers["location"] == member_page(acme, stranger)
    assert "eve@example.com is saved." in text_of(client.get(member_page(acme, stranger)))
    place = place_of(stranger, acme)
    assert (place.role, place.requests_per_minute, place.monthly_cost) == ("admin", 10, Decimal("12.50"))
    words = "10 requests a minute, 1,000,000 tokens a month, 12.50 USD a month"
    assert words in section(client, acme) and words in section(signed_in(stranger), acme)
    client.post(member_page(acme, stranger), {"role": "admin"})
    assert place_of(stranger, acme).requests_per_minute is None


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("requests_per_minute", "0", "At least 1, or nothing."),
        ("requests_per_minute", "-1", "At least 1, or nothing."),
        ("tokens_per_minute", "1.5", "Write a whole number, or nothing."),
        ("tokens_per_minute", "1e3", "Write a whole number, or nothing."),
        ("tokens_per_minute", "1" * 400, "At most 1,000,000,000."),
        ("tokens_per_minute", "1" * 5000, "Write a whole number, or nothing."),
        ("concurrent", "9" * 12, "At most 1,000,000,000."),
        ("concurrent", "\0", "Write a whole number, or nothing."),
        ("monthly_tokens", "0", "At least 1, or nothing."),
        ("monthly_tokens", "1000000000001", "At most 1,000,000,000,000."),
        ("monthly_tokens", "0.5", "Write a whole number, or nothing."),
        ("monthly_cost", "0", "At least 0.01, or nothing."),
        ("monthly_cost", "-3", "At least 0.01, or nothing."),
        ("monthly_cost", "0.001", "At least 0.01, or nothing."),
        ("monthly_cost", "1.005", "At most two digits after the point."),
        ("monthly_cost", "1000000000.01", "At most 1,000,000,000."),
        ("monthly_cost", "1" + "0" * 400, "At most 1,000,000,000."),
        ("monthly_cost", "1e400", "Write an amount such as 20 or 12.50, or nothing."),
        ("monthly_cost", "NaN", "Write an amount such as 20 or 12.50, or nothing."),
        ("monthly_cost", "Infinity", "Write an amount such as 20 or 12.50, or nothing."),
        ("monthly_cost", "ten", "Write an amount such as 20 or 12.50, or nothing."),
        ("role", "root", "Choose among the roles that are offered."),
        ("role", "", "Choose a role."),
    ],
)
def test_limits_that_are_none_are_refused_in_words(
    person: Person, stranger: Person, field: str, value: str, sentence: str
) -> None:
    acme = make_organization(person, member=stranger)
    answer = signed_in(person).post(member_page(acme, stranger), {"role": "admin", field: value})
    assert answer.status_code == 400 and sentence in text_of(answer)
    assert place_of(stranger, acme).role == "member" and events(acme) == ["created", "joined"]


def test_an_admin_sees_an_owner_but_changes_nothing(person: Person, stranger: Person) -> None:
    acme = make_organization(person, admin=stranger)
    key, _ = keys.create_api_key(person.user, acme, "work")
    client = signed_in(stranger)
    page = client.get(member_page(acme, person))
    assert "Only an owner can change" in text_of(page) and ">Revoke<" not in page.content.decode()
    for path in (member_page(acme, person), member_page(acme, person, "remove")):
        client.post(path, {"role": "admin"})
        assert "Only an owner can make, change or remove an owner." in section(client, acme)
    assert client.post(member_page(acme, person, "keys", key.public_id, "revoke")).status_code == 403
    key.refresh_from_db()
    assert key.is_working and roles_in(acme)[person.user.email] == "owner"
    answer = client.post(member_page(acme, stranger), {"role": "owner"})
    assert answer.status_code == 400 and roles_in(acme)[stranger.user.email] == "admin"


def test_a_manager_revokes_a_member_s_key(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    key, secret = keys.create_api_key(stranger.user, acme, "Nightly report")
    client = signed_in(person)
    assert "Nightly report" in text_of(client.get(member_page(acme, stranger)))
    assert stranger.key.public_id not in client.get(member_page(acme, stranger)).content.decode()
    client.post(member_page(acme, stranger, "keys", key.public_id, "revoke"))
    assert "The key “Nightly report” is revoked." in text_of(client.get(member_page(acme, stranger)))
    assert Client().get("/v1/conversations", headers={"authorization": f"Bearer {secret}"}).status_code == 401


def test_removing_asks_first_and_leads_back(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    client = signed_in(person)
    assert "Remove this member?" in text_of(client.get(member_page(acme, stranger, "remove")))
    assert stranger.user.email in roles_in(acme)
    client.post(member_page(acme, stranger, "remove"))
    page = section(client, acme)
    assert "eve@example.com is removed." in page and "eve@example.com removed by ada@example.com" in page
    assert client.post(member_page(acme, stranger, "remove")).status_code == 404
    assert signed_in(stranger).get(address(acme)).status_code == 404


def test_leaving_asks_first_and_leads_to_one_s_own(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    client = signed_in(stranger)
    client.post(address(acme, "switch"))
    assert "Leave this organization?" in text_of(client.get(address(acme, "leave")))
    client.post(address(acme, "leave"))
    page = text_of(client.get("/organization/", follow=True))
    assert "You have left Acme." in page and "This one is yours alone" in page
    owner = signed_in(person)
    owner.post(address(acme, "leave"))
    assert "An organization keeps at least one owner." in section(owner, acme)


def test_who_steps_down_lands_where_they_may_be(person: Person, stranger: Person) -> None:
    acme = make_organization(person, owner2=stranger)
    client = signed_in(person)
    answer = client.post(member_page(acme, person), {"role": "member"})
    assert client.get(answer.headers["location"]).status_code == 200


def test_the_history_names_people_and_what_changed(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    client = signed_in(person)
    client.post(address(acme, "invite"), {"email": "bea@example.com", "role": "billing"})
    client.post(member_page(acme, stranger), {"role": "admin", "concurrent": "2"})
    client.post(address(acme, "name"), {"name": "Acme & Co"})
    told = section(client, acme).partition("History")[2]
    for words in (
        "Organization made",
        "eve@example.com joined by a command on the server",
        "bea@example.com invited by ada@example.com",
        "role: billing",
        "Role of eve@example.com changed by ada@example.com",
        "role: member → admin",
        "replies at once: none → 2",
        "name: Acme → Acme &amp; Co",
    ):
        assert words in told, (words, told)
    assert "127.0.0.1" not in told


def test_pages_are_kept_by_no_cache(person: Person) -> None:
    client = signed_in(person)
    for path in (address(person.organization), "/organization/new", "/organization/invitations/x"):
        assert "no-store" in client.get(path).headers["cache-control"]


def test_many_members_cost_as_many_queries_as_few(
    person: Person, make_person: Any, django_assert_max_num_queries: Any
) -> None:
    acme = make_organization(person)
    for number in range(8):
        other = make_person(f"m{number}@example.com")
        Membership.objects.create(user=other.user, organization=acme, role="member")
    client = signed_in(person)
    client.get(address(acme))
    with django_assert_max_num_queries(14):
        client.get(address(acme))


def test_switching_leads_where_one_was_and_nowhere_else(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    client = signed_in(stranger)
    assert client.post(address(acme, "switch"), {"next": "/c/conv_x"}).headers["location"] == "/c/conv_x"
    for elsewhere in ("https://evil.example/", "//evil.example", "javascript:alert(1)"):
        assert client.post(address(acme, "switch"), {"next": elsewhere}).headers["location"] == address(acme)
    assert client.get(address(acme, "switch")).status_code == 405


def test_a_change_by_somebody_who_was_demoted_meanwhile_is_refused(person: Person, stranger: Person) -> None:
    acme = make_organization(person, admin=stranger)
    client = signed_in(stranger)
    client.get(member_page(acme, stranger))
    place_of(stranger, acme)
    Membership.objects.filter(user=stranger.user, organization=acme).update(role="member")
    assert client.post(member_page(acme, stranger), {"role": "admin"}).status_code == 403
    assert by(stranger.user).user_id == stranger.user.pk


def test_the_page_leads_to_what_was_used(person: Person, stranger: Person) -> None:
    acme = make_organization(person, member=stranger)
    for client in (signed_in(person), signed_in(stranger)):
        there = f"/usage/?organization={acme.public_id}"
        assert there in client.get(address(acme)).content.decode()
        assert client.get(there).status_code == 200
