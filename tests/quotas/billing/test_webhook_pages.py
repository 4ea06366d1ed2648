"""The pages of webhooks: the secret is shown once, and only owners and admins see them."""

import base64
from typing import Any

import pytest
from django.test import Client

from chatsite.webhooks import services
from chatsite.webhooks.events import EXPLAINED
from chatsite.webhooks.models import Delivery, Endpoint
from quotas.billing import alerts
from tests.chatsite.entering import text_of
from tests.chatsite.organizations import make_organization, signed_in
from tests.conftest import Person
from tests.quotas.billing.spending import has_budget, spend

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "/usage/webhooks/"
FORM = {"url": "https://example.org/hook", "events": ["budget.threshold"]}


@pytest.fixture
def client(person: Person) -> Client:
    return signed_in(person)


def made(client: Client) -> Endpoint:
    assert client.post(PAGE, FORM).status_code == 200
    return Endpoint.objects.get()


def test_the_secret_is_shown_once(client: Client) -> None:
    page = client.post(PAGE, FORM)
    endpoint = Endpoint.objects.get()
    secret = services.shown_secret(endpoint)
    assert secret in page.content.decode()
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert page["Cache-Control"] == "no-store, private"
    for address in (PAGE, PAGE + endpoint.public_id):
        assert secret not in client.get(address).content.decode()
    assert secret not in str(Endpoint.objects.values().get())
    renewed = client.post(f"{PAGE}{endpoint.public_id}/secret").content.decode()
    assert secret not in renewed
    assert services.shown_secret(Endpoint.objects.get()) in renewed


def test_changing_testing_and_deleting(client: Client) -> None:
    endpoint = made(client)
    one = PAGE + endpoint.public_id
    assert "https://example.org/hook" in client.get(PAGE).content.decode()
    changed = {"url": "https://example.org/other", "events": [str(each) for each in EXPLAINED]}
    assert "The webhook is saved." in client.post(one, changed, follow=True).content.decode()
    endpoint.refresh_from_db()
    assert (endpoint.url, endpoint.active, len(endpoint.events)) == ("https://example.org/other", False, len(EXPLAINED))
    assert "A test is on its way." in client.post(f"{one}/test", follow=True).content.decode()
    Delivery.objects.update(outcome="It answered 500: <script>", attempts=2, status=500)
    page = client.get(one).content.decode()
    assert "It answered 500: &lt;script&gt;" in page
    assert Delivery.objects.get().public_id in page
    for _ in range(services.MAX_TESTS):
        last = client.post(f"{one}/test", follow=True).content.decode()
    assert "So much waits for this webhook" in last
    assert client.get(f"{one}/delete").status_code == 200
    client.post(f"{one}/delete")
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "http://example.org/"}, "The address begins with https://."),
        ({"url": "https://10.0.0.1/"}, "This address is not on the public internet"),
        ({"url": "https://[::1]/"}, "This address is not on the public internet"),
        ({"url": ""}, "Write an address."),
        ({"url": "x" * 501}, "At most 500 characters."),
        ({"events": []}, "Choose at least one event."),
        ({"events": ["everything"]}, "Choose among what is offered."),
        ({"events": ["test"]}, "Choose among what is offered."),
    ],
)
def test_what_is_wrong_is_said(client: Client, changes: dict[str, Any], message: str) -> None:
    page = client.post(PAGE, {**FORM, **changes})
    assert page.status_code == 400
    assert message in page.content.decode()
    assert not Endpoint.objects.exists()


def test_one_for_each_address_and_so_many_at_most(client: Client, monkeypatch: Any) -> None:
    made(client)
    assert "There is a webhook with this address already." in client.post(PAGE, FORM).content.decode()
    monkeypatch.setattr(services, "MAX_ENDPOINTS", 1)
    page = client.post(PAGE, {**FORM, "url": "https://example.org/2"})
    assert "as many webhooks as one may have" in page.content.decode()


def test_s32_owners_and_admins_alone(make_person: Any) -> None:
    people = {name: make_person(f"{name}@example.com") for name in ("owner", "admin", "member", "billing", "stranger")}
    acme = make_organization(people["owner"], admin=people["admin"], member=people["member"], billing=people["billing"])
    signed_in(people["owner"]).post(PAGE, {**FORM, "organization": acme.public_id})
    endpoint = Endpoint.objects.get()
    assert endpoint.organization == acme
    expected = {"owner": 200, "admin": 200, "member": 403, "billing": 403, "stranger": 404}
    for name, status in expected.items():
        client = signed_in(people[name])
        for address in (PAGE, PAGE + endpoint.public_id, f"{PAGE}{endpoint.public_id}/delete"):
            assert client.get(address, {"organization": acme.public_id}).status_code == status, (name, address)
        for what in ("test", "secret"):
            sent = client.post(f"{PAGE}{endpoint.public_id}/{what}", {"organization": acme.public_id})
            assert (sent.status_code in (200, 302)) == (status == 200)
            if status != 200:
                assert sent.status_code == status
    assert signed_in(people["stranger"]).get(PAGE + endpoint.public_id).status_code == 404
    assert signed_in(people["stranger"]).post(f"{PAGE}{endpoint.public_id}/delete").status_code == 404
    assert Endpoint.objects.exists()
    assert Client().get(PAGE).status_code == 302


def test_an_alert_of_a_budget_is_told(client: Client, person: Person) -> None:
    made(client)
    has_budget(person.organization, "10")
    spend(person, "9")
    alerts.check(person.organization.pk)
    alerts.check(person.organization.pk)
    delivery = Delivery.objects.get()
    assert delivery.event == "budget.threshold"
    assert '"threshold": 80' in delivery.body
    assert '"limit": "10.0000000000", "spent": "9.0000000000", "currency": "USD"' in delivery.body
    assert "not sent yet" in text_of(client.get(PAGE + Endpoint.objects.get().public_id)).lower()


def test_in_the_admin(client: Client, make_person: Any) -> None:
    endpoint = made(client)
    client.post(f"{PAGE}{endpoint.public_id}/test")
    staff = signed_in(make_person("root@example.com", superuser=True))
    sent = Delivery.objects.get().pk
    for address in ("/admin/webhooks/endpoint/", f"/admin/webhooks/endpoint/{endpoint.pk}/change/",
                    "/admin/webhooks/delivery/", f"/admin/webhooks/delivery/{sent}/change/"):  # fmt: skip
        assert staff.get(address).status_code == 200
    off = {"action": "switch_off", "_selected_action": [str(endpoint.pk)]}
    assert staff.post("/admin/webhooks/endpoint/", off).status_code == 302
    assert not Endpoint.objects.get().active
    assert (
        services.shown_secret(endpoint)
        not in staff.get(f"/admin/webhooks/endpoint/{endpoint.pk}/change/").content.decode()
    )
