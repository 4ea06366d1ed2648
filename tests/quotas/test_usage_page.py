"""The usage page: whose use, which days, what is left, and nobody else's."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from chatsite.accounts import services as accounts
from chatsite.accounts.models import Organization
from chatsite.errors import Unavailable
from chatsite.ids import new_id, public_id
from inference.protocol import Usage
from quotas import rollups, selectors
from quotas.models import Budget
from tests.chatsite.organizations import make_organization, signed_in
from tests.conftest import Person
from tests.quotas.used import used

pytestmark = pytest.mark.django_db(transaction=True)


def page(person: Person, organization: Organization | None = None, status: int = 200, **query: str) -> str:
    if organization is not None:
        query = {**query, "organization": organization.public_id}
    answer = signed_in(person).get("/usage/", query)
    assert answer.status_code == status, answer.content
    return " ".join(answer.content.decode().split())


@pytest.fixture
def acme(person: Person, stranger: Person) -> Organization:
    """Of the two; each has used something there."""
    made = make_organization(person, member=stranger)
    used(made.pk, user_id=person.user.id, usage=Usage(2_000_000, 0, 1_000_000), model="large")
    rollups.roll_up()
    used(made.pk, user_id=stranger.user.id, usage=Usage(1000, 0, 0), model="small")
    return made


def test_only_for_who_is_signed_in() -> None:
    assert Client().get("/usage/").headers["Location"].startswith("/accounts/login/")
    assert Client().post("/usage/").status_code == 405


def test_nothing_used_yet(person: Person) -> None:
    text = page(person)
    assert "Nothing was used." in text
    assert "Your own use" in text
    assert "By model" not in text


def test_owners_see_everybody_and_each_member(person: Person, stranger: Person, acme: Organization) -> None:
    text = page(person, acme)
    assert "Everybody" in text
    assert "3,001,000" in text
    assert "0.60 USD" in text
    assert re.search(r"By model.*large.*small.*By API key.*in the browser.*By member.*ada@example.com.*eve@", text)
    member = page(person, acme, member=stranger.user.public_id)
    assert "Show everybody" in member
    assert "2,000,000" not in member
    assert "By member" not in member


def test_s32_members_see_only_themselves(person: Person, stranger: Person, acme: Organization) -> None:
    text = page(stranger, acme)
    assert "Your own use" in text
    assert "large" not in text
    assert "By member" not in text
    assert "ada@example.com" not in text
    assert "1,000" in page(stranger, acme, member=stranger.user.public_id)
    page(stranger, acme, status=404, member=person.user.public_id)


@pytest.mark.parametrize("role", ["admin", "billing", "owner2"])
def test_roles_that_see_everybody(person: Person, stranger: Person, role: str) -> None:
    acme = make_organization(person, **{role: stranger})
    used(acme.pk, user_id=person.user.id, model="large")
    assert "By member" in page(stranger, acme)
    page(stranger, acme, member=person.user.public_id)


def test_s32_another_organization_is_not_found(person: Person, make_person: Any) -> None:
    foreign = make_person("mallory@example.com")
    used(person.organization.pk, user_id=foreign.user.pk)
    page(foreign, person.organization, status=404)
    for wrong in ("org_nothing", str(person.organization.pk), public_id("org", new_id())):
        assert signed_in(foreign).get("/usage/", {"organization": wrong}).status_code == 404
    assert "Nothing was used." in page(foreign)


@pytest.mark.parametrize("member", ["nobody", "user_1", public_id("user", new_id()), "\0"])
def test_s32_who_is_no_member_is_not_found(person: Person, acme: Organization, member: str) -> None:
    page(person, acme, status=404, member=member)


def test_somebody_who_left_can_still_be_looked_at(person: Person, acme: Organization) -> None:
    gone = new_id()
    used(acme.pk, user_id=gone, usage=Usage(77, 0, 0))
    assert "somebody who is gone" in page(person, acme)
    assert "77" in page(person, acme, member=public_id("user", gone))


def test_ranges(person: Person) -> None:
    now = datetime.now(UTC)
    used(person.organization.pk, now - timedelta(days=20), user_id=person.user.pk, usage=Usage(111, 0, 0))
    used(person.organization.pk, now - timedelta(days=80), user_id=person.user.pk, usage=Usage(1000, 0, 0))
    totals = {days: page(person, range=days) for days in ("7", "30", "90")}
    assert "Nothing was used." in totals["7"]
    assert "111 in" in totals["30"]
    assert "1,111 in" in totals["90"]
    assert totals["90"].count("<title>2") == 90
    page(person, range="last-month")
    assert "There is no such range" in page(person, status=400, range="365")
    assert "Only cost and tokens" in page(person, status=400, show="lanes")


def test_tokens_in_place_of_cost(person: Person) -> None:
    used(person.organization.pk, user_id=person.user.pk, usage=Usage(300, 0, 100))
    text = page(person, show="tokens", range="7")
    assert "300 in, 100 out</title>" in text
    assert 'class="series-1"' in text
    assert "?range=30&amp;show=tokens" in text


def test_keys_that_replaced_one_another_are_one(person: Person) -> None:
    other, _ = accounts.create_api_key(person.user, person.organization, "nightly")
    other.chain_id = person.key.chain_id
    other.save()
    used(person.organization.pk, user_id=person.user.pk, api_key_id=person.key.pk)
    used(person.organization.pk, user_id=person.user.pk, api_key_id=other.pk)
    keys = page(person).partition("By API key")[2]
    assert keys.count('<th scope="row"') == 1
    assert "nightly" in keys


def test_keys_of_two_members_are_two_whatever_they_are_called(
    person: Person, stranger: Person, acme: Organization
) -> None:
    for owner in (person, stranger):
        key, _ = accounts.create_api_key(owner.user, acme, "laptop")
        used(acme.pk, user_id=owner.user.pk, api_key_id=key.pk)
    keys = page(person, acme).partition("By API key")[2]
    assert "laptop (ada@example.com)" in keys
    assert "laptop (eve@example.com)" in keys


def test_what_is_left_of_each_limit(person: Person) -> None:
    Budget.objects.create(organization=person.organization, limit_cost=Decimal(5))
    Budget.objects.create(organization=person.organization, limit_tokens=1000, period="rolling", days=7, hard=False)
    used(person.organization.pk, user_id=person.user.pk, usage=Usage(0, 0, 1_000_000))
    text = page(person).partition("What is left for you")[2]
    assert re.search(r"The demo plan</strong> <span class=\"muted\">tokens a minute", text)
    assert "<strong>4.60 USD</strong> of 5.00 USD left" in text
    assert "<strong>0</strong> of 1,000 tokens left" in text
    assert "It warns, and refuses nothing." in text
    assert "resets <time" in text
    assert "more <time" in text.partition("of 1,000 tokens left")[2]  # days that roll drop out one by one


def test_while_limits_cannot_be_read_the_rest_is_shown(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*args: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(selectors, "remaining", away)
    assert "The limits cannot be read" in page(person)


def test_names_are_text(person: Person) -> None:
    used(person.organization.pk, user_id=person.user.pk, model="<b>bold</b>")
    assert "<b>bold" not in page(person)


def test_the_page_has_no_inline_style_or_script(person: Person) -> None:
    used(person.organization.pk, user_id=person.user.pk)
    text = page(person)
    assert "style=" not in text
    assert not re.search(r"<script(?![^>]* src=)", text)
