"""What allauth asks of us: whose address a request comes from, and what is said of the site."""

import re
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.template.loader import render_to_string
from django.test import Client, RequestFactory

from chatsite.accounts import adapter as module
from chatsite.accounts.adapter import AccountAdapter
from chatsite.accounts.context import site
from chatsite.accounts.models import User
from tests.chatsite.entering import sign_up
from tests.conftest import Person


@pytest.fixture(autouse=True)
def _unwarned() -> None:
    module._warned.clear()


def client_ip(settings: Any, proxies: int, forwarded: str | None, remote: str | None = "10.0.0.1") -> str:
    settings.TRUSTED_PROXIES = settings.ALLAUTH_TRUSTED_PROXY_COUNT = proxies
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    request = RequestFactory().get("/", headers=headers)
    request.META["REMOTE_ADDR"] = remote
    return AccountAdapter(request).get_client_ip(request)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, None, "10.0.0.1"),
        (0, "198.51.100.1", "10.0.0.1"),
        (1, "198.51.100.1", "198.51.100.1"),
        (1, "evil, 198.51.100.1", "198.51.100.1"),
        (2, "203.0.113.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        (1, "2001:db8::1", "2001:db8::1"),
        (1, "198.51.100.1:4711", "198.51.100.1"),
        (1, None, "10.0.0.1"),
        # What does not fit is not believed, and is no error of the page.
        (2, "198.51.100.1", "10.0.0.1"),
        (3, "a,b", "10.0.0.1"),
        (1, "not an address", "10.0.0.1"),
        (1, ",,,", "10.0.0.1"),
        (1, "", "10.0.0.1"),
        (1, "x" * 5000, "10.0.0.1"),
    ],
)
def test_the_client_is_who_the_trusted_proxies_say(
    settings: Any, proxies: int, forwarded: str | None, expected: str
) -> None:
    assert client_ip(settings, proxies, forwarded) == expected


@pytest.mark.parametrize("remote", [None, "", "/run/site.sock"])
def test_a_client_without_an_address_has_a_placeholder(settings: Any, remote: str | None) -> None:
    assert client_ip(settings, 0, None, remote) == "0.0.0.0"


def test_a_wrong_count_is_logged_once(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        client_ip(settings, 2, "198.51.100.1")
    assert caplog.text.count("TRUSTED_PROXIES") == 1


def test_what_templates_may_say(settings: Any) -> None:
    settings.SITE_NAME, settings.SIGNUP_OPEN, settings.OIDC_ISSUER, settings.OIDC_NAME = "Chat", False, "", "Corp"
    request = RequestFactory().get("/")
    assert site(request) == {"site_name": "Chat", "signup_open": False, "oidc_name": ""}
    settings.OIDC_ISSUER = "https://corp.example"
    assert site(request)["oidc_name"] == "Corp"


@pytest.mark.parametrize("name", ["email_deleted", "login_code", "password_set", "unknown_account"])
def test_mails_are_plain_text(name: str) -> None:
    about = {
        "site_name": "R&D <chat>",
        "deleted_email": "a@b.example",
        "code": "X&Y",
        "site_url": "http://testserver/",
    }
    body = render_to_string(f"account/email/{name}_message.txt", about)
    assert "R&D <chat>" in body and "&amp;" not in body and "http://testserver/" in body


SITE = "https://chat.example.org"


def mailed(client: Client, host: str) -> str:
    client.post("/accounts/password/reset/", {"email": "ada@example.com"}, headers={"host": host})
    return str(mail.outbox[-1].body)


@pytest.mark.django_db
@pytest.mark.parametrize("host", ["testserver:6666", "testserver", "localhost:1"])
def test_links_in_mails_have_the_address_that_the_operator_gave(
    client: Client, settings: Any, person: Person, host: str
) -> None:
    settings.SITE_URL = SITE
    User.objects.filter(pk=person.user.pk).update(email="ada@example.com")
    sign_up(client, "new@example.com", headers={"host": host})
    sign_up(client, "ada@example.com", headers={"host": host})
    client.post("/accounts/password/reset/", {"email": "nobody@example.com"}, headers={"host": host})
    mailed(client, host)
    assert len(mail.outbox) == 4
    for each in mail.outbox:
        links = re.findall(r"https?://\S+", str(each.body))
        assert len(links) == 2 and all(link.startswith(f"{SITE}/") for link in links), each.body
        assert links[-1] == f"{SITE}/" and f"{SITE}/accounts/" in links[0]


class Sent(EmailBackend):
    """A backend of which the site cannot know that its mails stay here."""


@pytest.mark.django_db
@pytest.mark.parametrize("host", ["testserver:6666", "testserver", "localhost:1"])
def test_without_it_no_link_is_sent(settings: Any, person: Person, host: str, caplog: pytest.LogCaptureFixture) -> None:
    settings.SITE_URL, settings.EMAIL_BACKEND = "", f"{__name__}.Sent"
    client = Client(raise_request_exception=False)
    headers = {"host": host}
    assert sign_up(client, "new@example.com", headers=headers).status_code == 503
    assert not User.objects.filter(email="new@example.com").exists()
    assert sign_up(client, person.user.email, headers=headers).status_code == 503
    for email in (person.user.email, "nobody@example.com"):
        answer = client.post("/accounts/password/reset/", {"email": email}, headers=headers)
        assert answer.status_code == 503, "whoever the address belongs to"
    assert mail.outbox == []
    assert caplog.text.count("SITE_URL is missing") == 4


@pytest.mark.django_db
def test_without_it_printed_mails_have_the_address_that_was_asked(
    client: Client, settings: Any, person: Person
) -> None:
    settings.SITE_URL = ""
    User.objects.filter(pk=person.user.pk).update(email="ada@example.com")
    assert re.findall(r"http://testserver/(\w*)", mailed(client, "testserver")) == ["accounts", ""]
