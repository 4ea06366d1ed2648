"""Keys and members that spend ten times what is usual: flagged once a day, told, and paused where that was chosen."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from chatsite.accounts import keys, pausing
from chatsite.accounts.models import ApiKey, KeyEvent
from chatsite.accounts.protocol import SITE
from chatsite.ids import new_id
from chatsite.webhooks.models import Delivery, Endpoint
from quotas.billing import tasks, watch
from quotas.billing.models import SpendingFlag
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import at_once, by, make_organization, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import spend

pytestmark = pytest.mark.django_db(transaction=True)


def usually(person: Person, cost: str, **changes: Any) -> None:
    """So much in each of five hours of the past days."""
    now = datetime.now(UTC)
    for day in range(1, 6):
        spend(person, cost, at=now - timedelta(days=day), **changes)


def check(person: Person) -> list[tuple[str, Decimal, Decimal, bool]]:
    found = watch.check(person.organization.pk, datetime.now(UTC))
    return [(each.scope, each.spent, each.usual, each.paused) for each in found]


def choose(person: Person) -> None:
    pausing.choose(person.user, person.key.pk, by(person.user), pauses=True)


def test_a_key_is_flagged_at_ten_times_what_is_usual(person: Person) -> None:
    usually(person, "2")
    spend(person, "19.99")
    assert check(person) == []
    spend(person, "0.01")
    assert check(person) == [("key", Decimal(20), Decimal(2), False)]
    assert check(person) == []  # once a day
    SpendingFlag.objects.update(created_at=datetime.now(UTC) - timedelta(days=1, seconds=1))
    assert len(check(person)) == 1


def test_a_key_that_cost_nothing_is_flagged_from_ten_times_the_floor(person: Person, settings: Any) -> None:
    spend(person, "9.99")
    assert check(person) == []
    settings.UNUSUAL_SPENDING_FLOOR = Decimal("0.5")
    assert check(person) == [("key", Decimal("9.99"), Decimal("0.5"), False)]


def test_what_was_spent_more_than_an_hour_ago_is_no_more_unusual(person: Person) -> None:
    spend(person, "100", at=datetime.now(UTC) - timedelta(minutes=61))
    assert check(person) == []


def test_keys_that_replaced_one_another_are_one(person: Person) -> None:
    new, _ = keys.rotate_api_key(person.user, person.key.pk, new_id(), timedelta(days=1), None, by(person.user))
    usually(person, "2")
    spend(person, "12")
    spend(person, "8", api_key_id=new.pk)
    assert check(person) == [("key", Decimal(20), Decimal(2), False)]


def test_a_member_is_flagged_for_what_no_flagged_key_spent(person: Person) -> None:
    spend(person, "11", api_key_id=None)
    assert check(person) == [("member", Decimal(11), Decimal(1), False)]
    assert check(person) == []


def test_the_owner_and_those_who_see_the_billing_are_mailed_once(make_person: Any, settings: Any) -> None:
    settings.SITE_URL = "https://chat.example.org"
    owner, member = make_person("owner@example.com"), make_person("member@example.com")
    acme = make_organization(owner, member=member)
    key, _ = keys.create_api_key(member.user, acme, "nightly job")
    spend(member, "12.5", organization_id=acme.pk, api_key_id=key.pk)
    tasks.watch_spending()
    tasks.watch_spending()
    [message] = mail.outbox
    assert message.to == ["member@example.com", "owner@example.com"]
    assert message.subject == "An API key spends far more than usual"
    assert "“nightly job”" in message.body
    assert "spent 12.50 USD within an hour" in message.body
    assert "At most 1.00 USD an hour are usual." in message.body
    assert f"https://chat.example.org/account/keys/{key.public_id}" in message.body


def test_two_workers_flag_it_once(person: Person) -> None:
    choose(person)
    spend(person, "20")
    assert at_once(*[tasks.watch_spending] * 3) == [None] * 3
    assert SpendingFlag.objects.count() == 1
    assert len(mail.outbox) == 1


def test_a_webhook_is_told(person: Person) -> None:
    Endpoint.objects.create(organization=person.organization, url="https://example.org/", events=["spending.unusual"])
    spend(person, "20")
    check(person)
    assert '"scope": "key"' in Delivery.objects.get().body


def call(person: Person) -> Any:
    return Client().get("/v1/conversations", headers=person.headers)


def test_a_key_is_paused_where_its_owner_chose_so_and_resumed(person: Person) -> None:
    choose(person)
    assert call(person).status_code == 200
    spend(person, "20")
    assert check(person) == [("key", Decimal(20), Decimal(1), True)]
    answer = call(person)
    assert answer.status_code == 403
    assert answer.json()["code"] == "key_paused"
    assert answer.json()["detail"] == (
        "This API key is paused: it spent far more than usual. Its owner can resume it on the account page."
    )
    client = signed_in(person)
    page = text_of(client.get(f"/account/keys/{person.key.public_id}"))
    assert "Paused" in page
    assert "paused: no → yes: it spent 20.00 USD in an hour" in page
    assert "paused" in text_of(client.get("/account/"))
    resumed = client.post(f"/account/keys/{person.key.public_id}/resume", follow=True)
    assert "The key works again." in resumed.content.decode()
    assert call(person).status_code == 200
    assert check(person) == []  # not again within a day
    assert call(person).status_code == 200


def test_a_key_that_is_not_to_be_paused_goes_on(person: Person) -> None:
    spend(person, "20")
    check(person)
    assert call(person).status_code == 200


def test_the_choice_is_made_on_the_page(person: Person) -> None:
    client, address = signed_in(person), f"/account/keys/{person.key.public_id}"
    assert "Pause this key when it spends ten times what is usual" in client.get(address).content.decode()
    client.post(f"{address}/unusual", {"pauses": "on"})
    assert ApiKey.objects.get(pk=person.key.pk).pause_when_unusual
    client.post(f"{address}/unusual", {"pauses": "on"})
    client.post(f"{address}/unusual")
    assert not ApiKey.objects.get(pk=person.key.pk).pause_when_unusual
    assert KeyEvent.objects.filter(key_id=person.key.pk, kind="changed").count() == 2


def test_a_replaced_key_passes_the_choice_and_the_pause_on(person: Person) -> None:
    choose(person)
    pausing.pause(person.key.chain_id, SITE, "yes")
    new, _ = keys.rotate_api_key(person.user, person.key.pk, new_id(), timedelta(days=1), None, by(person.user))
    assert new.pause_when_unusual
    assert new.paused_at is not None
    pausing.resume(person.user, new.pk, by(person.user))
    assert not ApiKey.objects.filter(paused_at__isnull=False).exists()


def test_s32_only_the_owner_chooses_and_resumes(person: Person, stranger: Person) -> None:
    pausing.pause(person.key.chain_id, SITE, "yes")
    client = signed_in(stranger)
    for what in ("resume", "unusual"):
        assert client.post(f"/account/keys/{person.key.public_id}/{what}", {"pauses": "on"}).status_code == 404
        assert client.post(f"/account/keys/key_x/{what}").status_code == 404
        assert client.get(f"/account/keys/{person.key.public_id}/{what}").status_code == 405
    row = ApiKey.objects.get(pk=person.key.pk)
    assert row.paused_at is not None
    assert not row.pause_when_unusual


def test_flags_are_in_the_admin(person: Person, make_person: Any) -> None:
    spend(person, "20")
    check(person)
    staff = signed_in(make_person("root@example.com", superuser=True))
    html = staff.get("/admin/billing/spendingflag/").content.decode()
    assert person.key.public_id in html
    assert "20.00 USD" in html
    flag = SpendingFlag.objects.get()
    assert staff.get(f"/admin/billing/spendingflag/{flag.pk}/change/").status_code == 200
