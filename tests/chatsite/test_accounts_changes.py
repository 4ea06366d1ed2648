"""Changing and resetting the password, changing the address, and being asked who one is before."""

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.sessions.models import Session
from django.core import mail
from django.test import Client

from chatsite import notices
from chatsite.accounts import services
from chatsite.accounts.models import User
from chatsite.redis import sync_client
from tests.chatsite.entering import NEW_PASSWORD, RESET, is_in, last_link, sign_in, sign_up, text_of
from tests.chatsite.test_accounts_signup import NoServer
from tests.conftest import PASSWORD, Person

__all__ = ["NoServer"]
pytestmark = pytest.mark.django_db(transaction=True)
CHANGE, EMAIL_PAGE, WHO = "/accounts/password/change/", "/accounts/email/", "/accounts/reauthenticate/"
OTHER = "ada@new.example"


@pytest.fixture
def ada(client: Client, person: Person) -> Client:
    sign_in(client, person.user.email, PASSWORD)
    return client


def told(person: Person) -> list[bytes]:
    """What the user's pages were told."""
    return [fields[b"c"] for _, fields in sync_client().xrange(notices.stream_key(person.user.id))]  # type: ignore[union-attr,misc]


def prove(client: Client, then: str) -> Any:
    return client.post(f"{WHO}?next={then}", {"password": PASSWORD, "next": then})


def test_a_new_password_keeps_this_session_and_ends_the_others(ada: Client, person: Person) -> None:
    elsewhere = Client()
    sign_in(elsewhere, person.user.email, PASSWORD)
    assert is_in(elsewhere)
    answer = ada.post(CHANGE, {"oldpassword": PASSWORD, "password1": NEW_PASSWORD, "next": "/account/"})
    assert answer.headers["location"] == "/account/"
    page = text_of(ada.get("/account/"))
    assert "signed out everywhere else" in page and page.count("this one") == 1
    assert "last seen" not in page, "the ended session is not listed"
    assert not is_in(elsewhere)
    assert told(person)[-1] == str(notices.SESSIONS).encode()
    assert mail.outbox[-1].subject == "Your password was changed" and mail.outbox[-1].to == [person.user.email]
    person.user.refresh_from_db()
    assert person.user.check_password(NEW_PASSWORD)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("wrong", NEW_PASSWORD, "not your current password"),
        (PASSWORD, "short", "at least 8"),
        (PASSWORD, "x" * 1001, "1000"),
    ],
)
def test_a_bad_new_password_changes_nothing(ada: Client, person: Person, old: str, new: str, said: str) -> None:
    assert said in text_of(ada.post(CHANGE, {"oldpassword": old, "password1": new}))
    person.user.refresh_from_db()
    assert person.user.check_password(PASSWORD)
    assert not told(person) and not mail.outbox


def test_the_old_password_is_not_guessed_here_either(ada: Client) -> None:
    for _ in range(5):
        ada.post(CHANGE, {"oldpassword": "wrong", "password1": NEW_PASSWORD})
    assert ada.post(CHANGE, {"oldpassword": PASSWORD, "password1": NEW_PASSWORD}).status_code == 429


def test_a_reset_ends_every_session_and_its_link_works_once(ada: Client, person: Person) -> None:
    visitor = Client()
    assert visitor.post(RESET, {"email": person.user.email.upper()}).headers["location"] == f"{RESET}done/"
    link = last_link(person.user.email)
    form = visitor.get(link).headers["location"]
    assert "Choose a new password" in text_of(visitor.get(form))
    assert "at least 8" in text_of(visitor.post(form, {"password1": "short"}))
    assert visitor.post(form, {"password1": NEW_PASSWORD}).headers["location"] == "/accounts/password/reset/key/done/"
    assert not is_in(ada) and not is_in(visitor)
    assert told(person)[-1] == str(notices.SESSIONS).encode()
    for client in (visitor, Client()):
        assert "no longer works" in text_of(client.get(link))
        assert client.post(form, {"password1": "yet another password"}).status_code == 200
    person.user.refresh_from_db()
    assert person.user.check_password(NEW_PASSWORD)


@pytest.mark.parametrize("uid", ["zz", "0" * 32, "a" * 500])
@pytest.mark.parametrize("key", ["set-password", "c0ffee-0123", "x/y", "%00"])
def test_made_up_reset_links_say_so(client: Client, uid: str, key: str) -> None:
    answer = client.get(f"/accounts/password/reset/key/{uid}-{key}/")
    assert answer.status_code == 200 and "no longer works" in text_of(answer)


def test_an_expired_reset_link_says_so(client: Client, person: Person, settings: Any) -> None:
    client.post(RESET, {"email": person.user.email})
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert "no longer works" in text_of(client.get(last_link(person.user.email)))


def test_a_reset_does_not_tell_who_has_an_account(client: Client, person: Person) -> None:
    pages = []
    for email in (person.user.email, "nobody@example.com"):
        answer = client.post(RESET, {"email": email}, follow=True)
        pages.append((answer.redirect_chain, text_of(answer)))
    assert pages[0] == pages[1]
    assert mail.outbox[-1].subject == "No account with this address"


def test_the_address_changes_when_the_new_one_is_confirmed(ada: Client, person: Person) -> None:
    asked = ada.post(EMAIL_PAGE, {"email": OTHER.upper(), "action_add": ""})
    assert asked.headers["location"] == f"{WHO}?next=%2Faccounts%2Femail%2F"
    assert "not your password" in text_of(ada.post(asked.headers["location"], {"password": "wrong"}))
    assert not mail.outbox
    assert prove(ada, EMAIL_PAGE).headers["location"] == EMAIL_PAGE
    assert OTHER in text_of(ada.get(EMAIL_PAGE)) and "Changing to" in text_of(ada.get("/account/"))
    assert User.objects.get(pk=person.user.pk).email == person.user.email
    assert ada.post(last_link(OTHER)).headers["location"] == "/account/"
    assert User.objects.get(pk=person.user.pk).email == OTHER
    assert list(EmailAddress.objects.values_list("email", "verified", "primary")) == [(OTHER, True, True)]
    assert mail.outbox[-1].to == [person.user.email] and "changed from" in mail.outbox[-1].body
    assert sign_in(Client(), OTHER, PASSWORD).status_code == 302


def test_a_change_of_address_can_be_taken_back(ada: Client, person: Person) -> None:
    prove(ada, EMAIL_PAGE)
    ada.post(EMAIL_PAGE, {"email": OTHER, "action_add": ""})
    link = last_link(OTHER)
    ada.post(EMAIL_PAGE, {"email": OTHER, "action_remove": ""})
    assert "no longer works" in text_of(ada.get(link))
    assert EmailAddress.objects.get().email == person.user.email


def test_an_address_that_another_account_has_is_not_taken_over(ada: Client, person: Person, stranger: Person) -> None:
    services.create_user("new@example.com", NEW_PASSWORD, verified=False)
    prove(ada, EMAIL_PAGE)
    for email in (stranger.user.email, "new@example.com"):
        assert ada.post(EMAIL_PAGE, {"email": email, "action_add": ""}).status_code == 302, "as any other"
        answer = ada.post(last_link(email), follow=True)
        assert answer.status_code == 200 and "could not be confirmed" in text_of(answer)
        assert User.objects.get(pk=person.user.pk).email == person.user.email


def test_a_pending_change_gives_nobody_a_hold_on_that_address(ada: Client, person: Person) -> None:
    """Or a slip of the keyboard would let a stranger reset the password, or keep them from signing up."""
    prove(ada, EMAIL_PAGE)
    ada.post(EMAIL_PAGE, {"email": OTHER, "action_add": ""})
    visitor = Client()
    visitor.post(RESET, {"email": OTHER})
    assert mail.outbox[-1].subject == "No account with this address"
    sign_up(visitor, OTHER)
    assert User.objects.filter(email=OTHER).count() == 1
    assert sign_in(Client(), OTHER, NEW_PASSWORD).headers["location"] == "/accounts/confirm-email/"


def test_a_proof_holds_for_some_minutes_only(ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(ada, EMAIL_PAGE)
    assert ada.post(EMAIL_PAGE, {"email": OTHER, "action_add": ""}).headers["location"] == EMAIL_PAGE
    import time

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 301)
    assert ada.post(EMAIL_PAGE, {"email": "b@new.example", "action_add": ""}).headers["location"].startswith(WHO)


def test_proofs_are_counted_with_the_guesses(ada: Client, person: Person) -> None:
    for _ in range(5):
        ada.post(WHO, {"password": "wrong"})
    assert ada.post(WHO, {"password": PASSWORD}).status_code == 429


def test_without_a_password_a_code_comes_by_mail(ada: Client, person: Person) -> None:
    person.user.set_unusable_password()
    person.user.save()
    client = Client()
    client.force_login(person.user)
    answer = client.get("/accounts/password/set/")
    assert answer.headers["location"].startswith("/accounts/reauthenticate/code/")
    page = "/accounts/reauthenticate/code/?next=/accounts/password/set/"
    assert "Send it to" in text_of(client.get(page))
    client.post(page, {"recipient": person.user.email, "next": "/accounts/password/set/"})
    assert mail.outbox[-1].subject == "Your code"
    code = mail.outbox[-1].body.split("is\n\n")[1].split()[0]
    confirm = "/accounts/reauthenticate/code/confirm/"
    assert "not the code" in text_of(client.post(confirm, {"code": "nonsense"}))
    client.post(confirm, {"code": code, "next": "/accounts/password/set/"})
    assert "Set a password" in text_of(client.get("/accounts/password/set/"))
    assert client.post("/accounts/password/set/", {"password1": NEW_PASSWORD}).status_code == 302
    assert User.objects.get(pk=person.user.pk).check_password(NEW_PASSWORD)


def test_a_new_password_is_never_kept_in_a_session(person: Person) -> None:
    """The form was open for too long, and has to wait for a proof."""
    person.user.set_unusable_password()
    person.user.save()
    client = Client()
    client.force_login(person.user)
    assert client.post("/accounts/password/set/", {"password1": NEW_PASSWORD}).status_code == 302
    assert all(NEW_PASSWORD not in str(each.get_decoded()) for each in Session.objects.all())


def test_a_password_is_changed_though_the_notice_cannot_be_sent(ada: Client, person: Person, settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.NoServer"
    assert ada.post(CHANGE, {"oldpassword": PASSWORD, "password1": NEW_PASSWORD}).status_code == 302
    assert User.objects.get(pk=person.user.pk).check_password(NEW_PASSWORD)
    answer = Client(raise_request_exception=False).post(RESET, {"email": person.user.email})
    assert answer.status_code == 503 and "mail could not be sent" in text_of(answer)
