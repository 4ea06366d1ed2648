"""Making an account: a confirmed address, an organization, and nothing told to strangers."""

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model
from django.core import mail, signing
from django.core.mail.backends.locmem import EmailBackend
from django.test import Client

from chatsite.accounts import services
from chatsite.accounts.models import Membership, User
from chatsite.accounts.selectors import personal_organization
from tests.chatsite.entering import NEW_PASSWORD, SIGNUP, is_in, last_link, sign_in, sign_up, text_of
from tests.conftest import Person

pytestmark = pytest.mark.django_db
EMAIL = "bea@example.com"


def test_an_account_works_once_its_address_is_confirmed(client: Client, settings: Any) -> None:
    settings.SITE_NAME = "Chat at Example"
    answer = sign_up(client, "Bea@Example.com", name="Bea Ø'Neill")
    assert answer.headers["location"] == "/accounts/confirm-email/"
    assert "Check your mail" in text_of(client.get("/accounts/confirm-email/"))
    user = User.objects.get(email=EMAIL)
    assert (user.name, user.is_staff) == ("Bea Ø'Neill", False)
    organization = personal_organization(user)
    assert organization is not None
    assert Membership.objects.get(user=user).role == Membership.Role.OWNER
    (sent,) = mail.outbox
    assert sent.subject == "Confirm your address" and "Welcome to Chat at Example." in sent.body

    sign_in(client, EMAIL, NEW_PASSWORD)
    assert not is_in(client)
    page = client.get(last_link(EMAIL))
    assert page.status_code == 200 and EMAIL in text_of(page)
    assert not EmailAddress.objects.get(email=EMAIL).verified, "opened, as a mail scanner does, but not confirmed"
    assert client.post(last_link(EMAIL)).headers["location"] == "/accounts/login/"
    assert "is confirmed" in text_of(client.get("/accounts/login/"))
    sign_in(client, EMAIL, NEW_PASSWORD)
    assert is_in(client)


def test_links_that_are_used_expired_or_tampered_with_say_so(client: Client, settings: Any) -> None:
    sign_up(client, EMAIL)
    link = last_link(EMAIL)
    tampered = [link[:-2] + ("A/" if link[-2] != "A" else "B/"), "/accounts/confirm-email/x/"]
    tampered.append(f"/accounts/confirm-email/{signing.dumps(99_999_999, salt='account')}/")
    for path in tampered:
        assert "no longer works" in text_of(client.get(path)), path
        assert client.post(path).status_code == 404, path
    settings.ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = -1
    assert "no longer works" in text_of(client.get(link))
    settings.ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = 3
    client.post(link)
    assert "no longer works" in text_of(client.get(link))
    assert client.post(link).status_code == 404


def test_a_known_address_looks_like_a_new_one(person: Person) -> None:
    known, new = Client(), Client()
    answers = [sign_up(known, person.user.email.upper()), sign_up(new, EMAIL)]
    assert answers[0].status_code == answers[1].status_code == 302
    assert answers[0].headers["location"] == answers[1].headers["location"]
    pages = [text_of(each.get("/accounts/confirm-email/")) for each in (known, new)]
    assert pages[0] == pages[1]
    to_owner = next(each for each in mail.outbox if person.user.email in each.to)
    assert to_owner.subject == "You have an account already" and "password/reset" in to_owner.body
    assert User.objects.count() == 2
    assert person.user.check_password(NEW_PASSWORD) is False


def test_an_unconfirmed_sign_up_may_be_repeated_without_a_second_account(client: Client) -> None:
    sign_up(client, EMAIL)
    sign_up(Client(), EMAIL, "somebody else's password")
    user = User.objects.get(email=EMAIL)
    assert user.check_password(NEW_PASSWORD)


def test_two_sign_ups_of_one_address_at_once_make_one_account(
    client: Client, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second form is looked at before the first is saved."""
    from chatsite.accounts.forms import SignupForm

    def blind(form: Any, value: str) -> str:
        form.account_already_exists = False
        return value

    monkeypatch.setattr(SignupForm, "validate_unique_email", blind)
    assert sign_up(client, person.user.email).headers["location"] == "/accounts/confirm-email/"
    assert User.objects.count() == 1
    assert mail.outbox[-1].subject == "You have an account already"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("email", "not an address", "valid email"),
        ("email", "nul\0@example.com", "Null characters|valid email"),
        ("email", f"{'x' * 300}@example.com", "valid email|characters"),
        ("password1", "short", "at least 8"),
        ("password1", "password", "too common"),
        ("password1", "bea@example.com", "too similar"),
        ("password1", "nul\0nul\0nul\0", "Null characters"),
        ("password1", "x" * 1001, "at most 1000"),
        ("name", "x" * 151, "at most 150"),
        ("name", "two\nlines", "cannot be shown"),
        ("name", "nul\0", "Null characters|cannot be shown"),
        ("name", "turned \u202eround", "cannot be shown"),
    ],
)
def test_bad_input_is_named_and_makes_nothing(client: Client, field: str, value: str, said: str) -> None:
    answer = client.post(SIGNUP, {"email": EMAIL, "password1": NEW_PASSWORD, field: value})
    assert answer.status_code == 200
    assert re.search(said, text_of(answer)), text_of(answer)
    assert not User.objects.exists() and not mail.outbox


def test_s34_a_name_is_text_wherever_it_is_shown(client: Client, make_person: Any) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    sign_up(client, EMAIL, name=name)
    client.post(last_link(EMAIL))
    sign_in(client, EMAIL, NEW_PASSWORD)
    page = client.get("/account/").content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_closed_sign_up_says_so_and_takes_nobody(client: Client, settings: Any) -> None:
    settings.SIGNUP_OPEN = False
    assert "Sign-up is closed" in text_of(client.get(SIGNUP))
    assert "Sign-up is closed" in text_of(sign_up(client, EMAIL))
    assert not User.objects.exists() and not mail.outbox
    assert "Create an account" not in text_of(client.get("/accounts/login/"))
    settings.SIGNUP_OPEN = True
    assert "Create an account" in text_of(client.get("/accounts/login/"))


class NoServer(EmailBackend):
    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError("no mail server here")


def test_without_a_mail_server_nothing_is_half_made(settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.NoServer"
    answer = sign_up(Client(raise_request_exception=False), EMAIL)
    assert answer.status_code == 503
    assert "mail could not be sent" in text_of(answer) and "Traceback" not in text_of(answer)
    assert not User.objects.exists()


def test_users_that_an_operator_makes_need_no_link(client: Client) -> None:
    services.create_user("Ops@Example.com", NEW_PASSWORD)
    get_user_model().objects.create_superuser("Root@Example.com", NEW_PASSWORD)
    for email in ("ops@example.com", "root@example.com"):
        client = Client()
        sign_in(client, email, NEW_PASSWORD)
        assert is_in(client)
    assert not mail.outbox


def test_an_operator_may_leave_the_address_unconfirmed(client: Client) -> None:
    services.create_user(EMAIL, NEW_PASSWORD, verified=False)
    sign_in(client, EMAIL, NEW_PASSWORD)
    assert not is_in(client)
    client.post(last_link(EMAIL))
    sign_in(client, EMAIL, NEW_PASSWORD)
    assert is_in(client)
