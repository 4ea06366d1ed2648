"""Deliveries: signed, sent again with pauses, by one worker at a time; never into the private network."""

import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.webhooks import delivering, sending, services
from chatsite.webhooks.events import Event
from chatsite.webhooks.models import Delivery, Endpoint
from tests.chatsite.organizations import at_once, by, make_organization
from tests.chatsite.webhooks.receiver import Receiver, receiver
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _private(settings: Any) -> None:
    settings.WEBHOOKS_TO_PRIVATE_NETWORKS = True


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def hook(person: Person, url: str) -> Endpoint:
    return services.add(person.organization.pk, url, [Event.BUDGET_THRESHOLD], by(person.user))


def emit(person: Person, **data: Any) -> int:
    return services.emit(person.organization.pk, Event.BUDGET_THRESHOLD, data)


def only() -> Delivery:
    return Delivery.objects.get()


def now_due() -> None:
    Delivery.objects.update(due_at=timezone.now() - timedelta(seconds=1))


def test_an_event_is_sent_signed(person: Person, server: Receiver) -> None:
    endpoint = hook(person, server.url)
    assert emit(person, threshold=80) == 1
    assert delivering.deliver_due() == 1
    [(headers, body)] = server.got
    told = json.loads(body)
    assert told["type"] == "budget.threshold"
    assert told["data"] == {"organization": person.organization.public_id, "threshold": 80}
    assert headers["webhook-id"] == told["id"] == only().public_id
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    secret = base64.b64decode(services.shown_secret(endpoint).removeprefix("whsec_"))
    signed = f"{told['id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert (only().state, only().status, only().outcome) == ("delivered", 200, "Taken.")
    assert delivering.deliver_due() == 0


def test_another_secret_signs_what_is_sent_from_then_on(person: Person, server: Receiver) -> None:
    endpoint = hook(person, server.url)
    old = services.shown_secret(endpoint)
    renewed = services.renew_secret(person.organization.pk, endpoint.pk, by(person.user))
    assert services.shown_secret(renewed) != old
    assert services.shown_secret(Endpoint.objects.get()) == services.shown_secret(renewed)


def test_only_those_are_told_who_want_it(person: Person, stranger: Person, server: Receiver) -> None:
    endpoint = hook(person, server.url)
    hook(stranger, server.url)
    assert services.emit(person.organization.pk, Event.SPENDING_UNUSUAL, {}) == 0
    services.change(
        person.organization.pk, endpoint.pk, server.url, [Event.BUDGET_THRESHOLD], by(person.user), active=False
    )
    assert emit(person) == 0


def test_an_event_of_what_did_not_happen_is_not_sent(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        emit(person)
        _ = 1 / 0
    assert not Delivery.objects.exists()


def test_what_is_not_taken_is_sent_again_with_longer_pauses_and_given_up(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    emit(person)
    server.behave = 500
    for attempt, pause in enumerate(delivering.PAUSES, 1):
        before = timezone.now()
        assert delivering.deliver_due() == 1
        assert (only().state, only().attempts, only().status) == ("waiting", attempt, 500)
        assert pause <= only().due_at - before < pause + timedelta(seconds=30)
        assert delivering.deliver_due() == 0
        now_due()
    assert delivering.deliver_due() == 1
    assert only().state == "failed"
    assert only().outcome == "It answered 500: no <b>thanks</b> really"
    assert only().ended_at is not None
    now_due()
    assert delivering.deliver_due() == 0
    ids = {headers["webhook-id"] for headers, _ in server.got}
    assert ids == {only().public_id}


def test_a_webhook_that_hangs_is_given_up_and_holds_up_no_other(
    person: Person, server: Receiver, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sending, "SECONDS", 1)
    server.behave = "hang"
    hook(person, server.url)
    emit(person)
    with receiver() as other:
        hook(person, other.url)
        emit(person)
        begun = time.monotonic()
        assert delivering.deliver_due() == 3
        assert time.monotonic() - begun < 8
        assert len(other.got) == 1
    states = sorted(Delivery.objects.values_list("state", "outcome"))
    assert states == [("delivered", "Taken."), *[("waiting", "No answer within 1 s.")] * 2]


@pytest.mark.parametrize("behave", ["huge", "drip"])
def test_an_answer_without_end_is_not_read(person: Person, server: Receiver, behave: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(sending, "SECONDS", 2)
    server.behave = behave
    hook(person, server.url)
    emit(person)
    assert delivering.deliver_due() == 1
    assert only().status in (500, None)
    assert only().state == "waiting"
    assert len(only().outcome) < 200
    assert server.sent_bytes < 50 * 1024 * 1024


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(person: Person, server: Receiver, status: int) -> None:
    """Least of all into the private network."""
    with receiver() as inner:
        server.behave, server.location = status, inner.url
        hook(person, server.url)
        emit(person)
        delivering.deliver_due()
        assert inner.got == []
    assert only().outcome == "It redirects, which is not followed: give the address that it leads to."
    assert (only().state, only().status) == ("waiting", status)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]", "0"])
def test_nothing_is_sent_into_the_private_network(person: Person, server: Receiver, host: str, settings: Any) -> None:
    """Saved while it was allowed, or by a name that has come to mean something else."""
    url = f"https://{host}:{server.port}/hook"
    Endpoint.objects.create(organization=person.organization, url=url, events=["budget.threshold"])
    settings.WEBHOOKS_TO_PRIVATE_NETWORKS = False
    emit(person)
    delivering.deliver_due()
    assert server.got == []
    assert only().status is None
    assert only().outcome == "This address is not on the public internet, so nothing is sent there."


def test_a_proxy_of_the_environment_is_not_used(person: Person, server: Receiver, monkeypatch: Any) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    hook(person, server.url)
    emit(person)
    delivering.deliver_due()
    assert only().state == "delivered"


def test_nobody_listens(person: Person) -> None:
    hook(person, "http://127.0.0.1:9/")
    emit(person)
    delivering.deliver_due()
    assert only().outcome == "No connection could be made, or it was broken off."


def test_no_secure_connection(person: Person, server: Receiver) -> None:
    hook(person, server.url.replace("http:", "https:"))
    emit(person)
    delivering.deliver_due()
    assert only().outcome == "No secure connection could be made."


def test_several_workers_send_it_once(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    for _ in range(3):
        emit(person)
    assert sum(at_once(*[delivering.deliver_due] * 3)) == 3
    assert len(server.got) == 3
    now_due()
    assert sum(at_once(*[delivering._deliver] * 3)) == 0


def test_what_a_killed_worker_took_is_sent_again(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    emit(person)
    assert len(delivering._take()) == 1
    assert delivering.deliver_due() == 0
    Delivery.objects.update(due_at=timezone.now())
    assert delivering.deliver_due() == 1
    assert (only().state, only().attempts) == ("delivered", 2)


def waiting(endpoint: Endpoint, count: int) -> None:
    """So many that have been due for a while."""
    due = timezone.now() - timedelta(minutes=1)
    Delivery.objects.bulk_create(
        Delivery(endpoint=endpoint, event="test", body="{}", due_at=due + timedelta(milliseconds=each))
        for each in range(count)
    )


def taken_of(*organizations: Organization) -> list[int]:
    """How many of each are in the next run."""
    found = Counter(each.endpoint.organization_id for each in delivering._take())
    return [found[each.pk] for each in organizations]


def test_of_one_organization_only_some_are_taken_at_a_time(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    for _ in range(delivering.OF_ONE_ORGANIZATION + 1):
        emit(person)
    assert delivering.deliver_due() == delivering.OF_ONE_ORGANIZATION
    assert delivering.deliver_due() == 1


def test_whoever_has_hundreds_waiting_does_not_hold_up_others(person: Person, stranger: Person) -> None:
    for number in range(10):
        waiting(hook(person, f"http://127.0.0.1:9/{number}"), 30)
    hook(stranger, "http://127.0.0.1:9/")
    emit(stranger)
    assert taken_of(person.organization, stranger.organization) == [4, 1]
    assert taken_of(person.organization, stranger.organization) == [4, 0]


def test_who_has_many_organizations_does_not_hold_up_others_either(person: Person, stranger: Person) -> None:
    """Everybody's first comes before anybody's second."""
    mine = [make_organization(person, f"Acme {number}") for number in range(9)]
    for organization in mine:
        url = "http://127.0.0.1:9/"
        waiting(services.add(organization.pk, url, [Event.BUDGET_THRESHOLD], by(person.user)), 30)
    hook(stranger, "http://127.0.0.1:9/")
    for _ in range(3):
        emit(stranger)
    *counts, of_stranger = taken_of(*mine, stranger.organization)
    assert of_stranger == 3
    assert sum(counts) == delivering.AT_ONCE - 3
    assert min(counts) >= 3


def test_within_an_organization_one_webhook_does_not_hold_up_another(person: Person) -> None:
    waiting(hook(person, "http://127.0.0.1:9/hangs"), 200)
    hook(person, "http://127.0.0.1:9/other")
    emit(person)  # both are told
    taken = Counter(each.endpoint.url for each in delivering._take())
    assert taken == {"http://127.0.0.1:9/hangs": 3, "http://127.0.0.1:9/other": 1}


def test_what_waits_for_a_webhook_that_is_off_ends(person: Person, server: Receiver) -> None:
    endpoint = hook(person, server.url)
    emit(person)
    Endpoint.objects.update(active=False)
    services.send_test(person.organization.pk, endpoint.pk, by(person.user))
    assert delivering.deliver_due() == 1
    assert sorted(Delivery.objects.values_list("event", "state")) == [
        ("budget.threshold", "failed"),
        ("test", "delivered"),
    ]


def test_old_deliveries_are_forgotten(person: Person, server: Receiver) -> None:
    hook(person, server.url)
    emit(person)
    delivering.deliver_due()
    emit(person)
    Delivery.objects.update(created_at=timezone.now() - delivering.KEPT - timedelta(minutes=1))
    assert delivering.forget_old() == 1
    assert only().state == "waiting"
