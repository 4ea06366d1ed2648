"""Conversations belong to a person and an organization: they are listed and opened where they were made."""

import pytest
from django.test import Client

from chatsite.accounts import members
from chatsite.accounts.models import Organization
from chatsite.database import run_db
from conversations.models import Conversation
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import NO_LIMITS, address, by, make_organization, signed_in
from tests.conftest import Person
from tests.conversations.pages import connected, make_model

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(person: Person, stranger: Person) -> Organization:
    make_model()
    return make_organization(stranger, member=person)


def begin(client: Client) -> str:
    answer = client.post("/v1/conversations", {"model": "tiny", "title": "At work"}, "application/json")
    assert answer.status_code == 201
    return str(answer.json()["id"])


def listed(client: Client) -> list[str]:
    return [each["id"] for each in client.get("/v1/conversations").json()["data"]]


def test_a_conversation_is_listed_and_opened_where_it_was_made(person: Person, acme: Organization) -> None:
    client = signed_in(person)
    client.post(address(acme, "switch"))
    public = begin(client)
    assert Conversation.objects.get().organization_id == acme.pk
    assert listed(client) == [public] and "At work" in text_of(client.get("/"))
    assert "Acme" in text_of(client.get("/")), "the page says where one works"
    client.post(address(person.organization, "switch"))
    assert listed(client) == [] and "At work" not in text_of(client.get("/"))
    assert client.get(f"/v1/conversations/{public}").status_code == 404
    page = client.get(f"/c/{public}")
    assert page.status_code == 404 and "It belongs to Acme" in text_of(page) and "At work" not in text_of(page)
    answer = client.post(address(acme, "switch"), {"next": f"/c/{public}"})
    assert answer.headers["location"] == f"/c/{public}" and client.get(f"/c/{public}").status_code == 200


def test_s32_whose_it_is_is_told_to_nobody_else(person: Person, stranger: Person, acme: Organization) -> None:
    client, owner = signed_in(person), signed_in(stranger)
    for each in (client, owner):
        each.post(address(acme, "switch"))
    public = begin(client)
    assert listed(owner) == [], "not even for owners of the organization"
    owner.post(address(stranger.organization, "switch"))
    page = owner.get(f"/c/{public}")
    assert page.status_code == 404 and "Acme" not in text_of(page)


def test_what_was_made_in_an_organization_that_one_has_left_is_gone(
    person: Person, stranger: Person, acme: Organization
) -> None:
    client = signed_in(person)
    client.post(address(acme, "switch"))
    public = begin(client)
    members.remove(acme.pk, person.user.pk, by(stranger.user))
    page = client.get(f"/c/{public}")
    assert page.status_code == 404 and "Acme" not in text_of(page)
    assert Conversation.objects.count() == 1


async def test_a_page_whose_organization_changes_is_loaded_anew(person: Person, stranger: Person) -> None:
    acme = await run_db(make_organization, stranger)
    await run_db(lambda: members.add(acme.pk, person.user, members.Role.MEMBER, by(stranger.user)))
    client = await run_db(signed_in, person)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    async with connected("", None, cookie=cookie) as here, connected("", person.user) as elsewhere:
        for socket in (here, elsewhere):
            await socket.hello()
        await run_db(client.post, address(acme, "switch"))
        assert await here.closed() == 4401
        assert await elsewhere.silent(), "another session works where it did"
    async with connected("", None, cookie=cookie) as again, connected("", person.user) as elsewhere:
        for socket in (again, elsewhere):
            await socket.hello()
        wanted = {**NO_LIMITS, "concurrent": 1}
        await run_db(members.change, acme.pk, person.user.pk, members.Role.MEMBER, wanted, by(stranger.user))
        assert await again.silent(), "with other limits it goes on"
        await run_db(members.remove, acme.pk, person.user.pk, by(stranger.user))
        assert await again.closed() == 4401
        assert await elsewhere.silent()
