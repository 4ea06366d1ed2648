"""Invitations by mail: bound to an address, used once, for people with and without an account."""

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection
from django.test import Client
from django.utils import timezone

from chatsite.accounts import invitations, members
from chatsite.accounts.errors import InvitationAccepted, TooManyInvitations
from chatsite.accounts.models import Invitation, Membership, Organization, User
from chatsite.accounts.protocol import COMMAND
from chatsite.accounts.roles import Role
from tests.chatsite.entering import NEW_PASSWORD, last_link, sign_in, sign_up, text_of
from tests.chatsite.organizations import address, at_once, by, events, make_organization, roles_in, signed_in
from tests.conftest import PASSWORD, Person

pytestmark = pytest.mark.django_db
NEW = "bea@example.com"


@pytest.fixture
def acme(person: Person) -> Organization:
    return make_organization(person)


def invite(person: Person, organization: Organization, email: str, role: str = "member") -> Any:
    return signed_in(person).post(address(organization, "invite"), {"email": email, "role": role})


def link_to(email: str) -> str:
    """Of the invitation in the last mail."""
    body = next(str(each.body) for each in reversed(mail.outbox) if email in each.to)
    return re.findall(r"http://testserver(/organization/invitations/\S+)", body)[0]


def token_of(link: str) -> str:
    return link.rpartition("/")[2]


def test_an_invitation_is_a_mail_with_a_link(person: Person, acme: Organization) -> None:
    answer = invite(person, acme, "Bea@Example.com", "billing")
    assert answer.headers["location"] == f"{address(acme)}#invitations"
    (sent,) = mail.outbox
    assert sent.to == [NEW] and sent.subject == "Invitation to “Acme”"
    assert f"{person.user.email} invites you to the organization “Acme” at" in sent.body and "as billing" in sent.body
    ((html, kind),) = sent.alternatives  # type: ignore[attr-defined]
    assert kind == "text/html" and link_to(NEW) in html
    row = Invitation.objects.get(organization=acme)
    assert (row.email, row.role, row.invited_by) == (NEW, "billing", person.user)
    assert row.expires_at - row.sent_at == timedelta(days=7)
    assert events(acme) == ["created", "invited"]


def test_s33_only_a_hash_of_the_token_is_kept(person: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    token = token_of(link_to(NEW))
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    signed_in(person).get(link_to(NEW))
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', [f"%{token}%"])
            assert cursor.fetchone() == (0,), table


def test_what_is_in_the_names_stays_text_in_the_mail(person: Person) -> None:
    acme = make_organization(person, "<b>Acme</b> & Co " + "x" * 100)
    invite(person, acme, NEW)
    (sent,) = mail.outbox
    assert sent.subject.startswith("Invitation to “<b>Acme</b> & Co x") and len(sent.subject) < 90
    assert "<b>Acme</b> & Co" in sent.body
    assert "<b>" not in str(sent.alternatives[0][0])  # type: ignore[attr-defined]


def test_somebody_with_an_account_joins_by_the_link_and_works_there(
    person: Person, stranger: Person, acme: Organization
) -> None:
    invite(person, acme, stranger.user.email.upper(), "admin")
    client = Client()
    page = client.get(link_to(stranger.user.email))
    assert "Join Acme" in text_of(page) and "Sign in" in text_of(page) and "Create an account" in text_of(page)
    login = re.findall(r'href="(/accounts/login/\?next=[^"]+)"', page.content.decode())[0]
    answer = client.post(
        login, {"login": stranger.user.email, "password": PASSWORD, "next": link_to(stranger.user.email)}
    )
    assert answer.headers["location"] == link_to(stranger.user.email)
    page = client.get(answer.headers["location"])
    assert re.search(r"<button[^>]*>Join</button>", page.content.decode())
    assert roles_in(acme) == {person.user.email: "owner"}, "opening a link changes nothing"
    answer = client.post(link_to(stranger.user.email))
    assert answer.headers["location"] == address(acme)
    assert roles_in(acme)[stranger.user.email] == "admin"
    assert "You have joined Acme" in text_of(client.get(address(acme)))
    assert client.get("/organization/").headers["location"] == address(acme)
    assert events(acme) == ["created", "invited", "joined"]


def test_somebody_without_an_account_signs_up_and_joins_once_confirmed(person: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    client = Client()
    page = client.get(link_to(NEW)).content.decode()
    signup = re.findall(r'href="(/accounts/signup/\?invitation=[^"]+)"', page)[0]
    form = client.get(signup).content.decode()
    assert f'value="{NEW}"' in form
    token = re.findall(r'name="invitation" value="([^"]+)"', form)[0]
    assert token == token_of(link_to(NEW))
    sign_up(client, NEW, invitation=token)
    assert NEW not in roles_in(acme), "the address is not confirmed yet"
    other = Client()  # the mail is read elsewhere
    other.post(last_link(NEW))
    assert roles_in(acme)[NEW] == "member"
    assert "You have joined Acme" in text_of(other.get("/accounts/login/"))
    sign_in(client, NEW, NEW_PASSWORD)
    assert "Acme" in text_of(client.get("/organization/", follow=True))
    assert Invitation.objects.get(organization=acme).accepted_at is not None


@pytest.mark.parametrize("what", ["another address", "no token", "withdrawn", "expired", "a wrong token"])
def test_a_sign_up_that_is_not_invited_joins_nothing(person: Person, acme: Organization, what: str) -> None:
    invite(person, acme, NEW)
    token = {"no token": "", "a wrong token": "x" * 43}.get(what, token_of(link_to(NEW)))
    email = "other@example.com" if what == "another address" else NEW
    sign_up(Client(), email, invitation=token)
    row = Invitation.objects.filter(organization=acme)
    if what == "withdrawn":
        invitations.withdraw(acme.pk, row.get().pk, by(person.user))
    if what == "expired":
        row.update(expires_at=timezone.now())
    Client().post(last_link(email))
    assert EmailAddress.objects.get(email=email).verified
    assert roles_in(acme) == {person.user.email: "owner"}


def test_a_known_address_that_signs_up_with_an_invitation_looks_like_a_new_one(
    person: Person, stranger: Person, acme: Organization
) -> None:
    pages = []
    for email in (stranger.user.email, NEW):
        invite(person, acme, email)
        client = Client()
        answer = sign_up(client, email, invitation=token_of(link_to(email)))
        pages.append((answer.status_code, answer.headers["location"], text_of(client.get(answer.headers["location"]))))
    assert pages[0] == pages[1]
    assert roles_in(acme) == {person.user.email: "owner"}


def test_nobody_learns_whether_an_address_has_an_account(person: Person, stranger: Person, acme: Organization) -> None:
    told = []
    for email in (stranger.user.email, "nobody@example.com"):
        client = signed_in(person)
        client.post(address(acme, "invite"), {"email": email, "role": "member"})
        page = text_of(client.get(address(acme)))
        link = text_of(Client().get(link_to(email)))
        told.append((page.replace(email, "X").partition("Your organizations")[0], link.replace(email, "X")))
        invitations.withdraw(acme.pk, Invitation.objects.get(email=email).pk, by(person.user))
    assert told[0] == told[1]
    assert [each.body.count("account yet") for each in mail.outbox] == [1, 1]


def test_another_user_is_told_for_whom_it_is(person: Person, stranger: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    client = signed_in(stranger)
    page = text_of(client.get(link_to(NEW)))
    assert f"You are signed in as {stranger.user.email} . Sign out" in page and "Join Acme" in page
    answer = client.post(link_to(NEW))
    assert answer.status_code == 403
    assert f"This invitation is for {NEW}, and you are signed in as {stranger.user.email}." in text_of(answer)
    assert stranger.user.email not in roles_in(acme)


def test_an_address_that_is_not_confirmed_does_not_count(person: Person, stranger: Person, acme: Organization) -> None:
    invite(person, acme, stranger.user.email)
    EmailAddress.objects.filter(user=stranger.user).update(verified=False)
    assert signed_in(stranger).post(link_to(stranger.user.email)).status_code == 403
    EmailAddress.objects.create(user=person.user, email=NEW, verified=False)
    invite(person, acme, NEW)
    assert signed_in(person).post(link_to(NEW)).status_code == 403


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("used", "was accepted already"),
        ("withdrawn", "was withdrawn"),
        ("expired", "has expired"),
        ("replaced", "no invitation with this link"),
        ("garbage", "no invitation with this link"),
        ("huge", "no invitation with this link"),
    ],
)
def test_links_that_no_longer_work_say_so(
    person: Person, stranger: Person, acme: Organization, what: str, sentence: str
) -> None:
    email = stranger.user.email
    invite(person, acme, email)
    link, row = link_to(email), Invitation.objects.get(organization=acme)
    if what == "used":
        signed_in(stranger).post(link)
        members.remove(acme.pk, stranger.user.pk, by(person.user))  # it lets nobody in a second time
    elif what == "withdrawn":
        invitations.withdraw(acme.pk, row.pk, by(person.user))
    elif what == "expired":
        Invitation.objects.update(expires_at=timezone.now())
    elif what == "replaced":
        Invitation.objects.update(sent_at=timezone.now() - timedelta(hours=1))
        signed_in(person).post(address(acme, "invitations", row.public_id, "resend"))
        assert link_to(email) != link
    else:
        link = "/organization/invitations/" + ("x" if what == "garbage" else "y" * 5000)
    for client in (Client(), signed_in(stranger)):
        for answer in (client.get(link), client.post(link)):
            assert answer.status_code == 404
            assert "This link no longer works" in text_of(answer) and sentence in text_of(answer)
    assert stranger.user.email not in roles_in(acme)


def test_a_post_of_nobody_joins_nothing(person: Person, stranger: Person, acme: Organization) -> None:
    invite(person, acme, stranger.user.email)
    assert Client().post(link_to(stranger.user.email)).status_code == 401
    assert Client(enforce_csrf_checks=True).post(link_to(stranger.user.email)).status_code == 403
    assert stranger.user.email not in roles_in(acme)


def test_who_is_a_member_already_stays_what_they_are(person: Person, stranger: Person, acme: Organization) -> None:
    invite(person, acme, stranger.user.email)
    members.add(acme.pk, stranger.user, Role.ADMIN, COMMAND)
    client = signed_in(stranger)
    assert "You are a member already" in text_of(client.get(link_to(stranger.user.email)))
    assert client.post(link_to(stranger.user.email)).status_code == 302
    assert roles_in(acme)[stranger.user.email] == "admin"
    assert events(acme).count("joined") == 1
    answer = invite(person, acme, stranger.user.email)
    assert answer.status_code == 409 and "is a member already" in text_of(answer)


def test_an_address_is_invited_once_at_a_time(person: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    answer = invite(person, acme, NEW.upper())
    assert answer.status_code == 409 and "is invited already" in text_of(answer)
    Invitation.objects.update(expires_at=timezone.now())
    assert "expired" in text_of(signed_in(person).get(address(acme)))
    assert invite(person, acme, NEW, "admin").status_code == 302
    row = Invitation.objects.get(organization=acme)
    assert row.role == "admin" and not row.is_expired and len(mail.outbox) == 2


def test_an_invitation_is_sent_again_but_not_at_once(person: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    first, row = link_to(NEW), Invitation.objects.get(organization=acme)
    client, again = signed_in(person), address(acme, "invitations", row.public_id, "resend")
    client.post(again)
    assert "was just sent" in text_of(client.get(address(acme))) and len(mail.outbox) == 1
    Invitation.objects.update(sent_at=timezone.now() - timedelta(minutes=2), expires_at=timezone.now())
    client.post(again)
    assert len(mail.outbox) == 2 and link_to(NEW) != first
    assert Client().get(link_to(NEW)).status_code == 200
    client.post(address(acme, "invitations", row.public_id, "withdraw"))
    page = text_of(client.get(address(acme)))
    assert f"The invitation of {NEW} is withdrawn." in page
    client.post(again)
    assert "was withdrawn" in text_of(client.get(address(acme))) and len(mail.outbox) == 2
    assert events(acme) == ["created", "invited", "resent", "withdrawn"]


def test_so_many_mails_a_day(person: Person, stranger: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "PER_DAY", 2)
    acme, other = make_organization(person, admin=stranger), make_organization(person, "Other")
    invite(person, acme, "a@example.com")
    invite(stranger, acme, "b@example.com")
    answer = invite(person, acme, "c@example.com")
    assert answer.status_code == 429 and "This organization has sent 2 invitations in a day." in text_of(answer)
    invite(person, other, "d@example.com")
    answer = invite(person, other, "e@example.com")
    assert answer.status_code == 429 and "You have sent 2 invitations in a day." in text_of(answer)
    assert len(mail.outbox) == 3 and Invitation.objects.count() == 3


def test_an_organization_that_is_full_invites_nobody(person: Person, acme: Organization, monkeypatch: Any) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 2)
    invite(person, acme, "a@example.com")
    answer = invite(person, acme, "b@example.com")
    assert answer.status_code == 409 and "as many members and invitations" in text_of(answer)


@pytest.mark.parametrize("email", ["", "x", "x@", "a" * 250 + "@example.com", "a\0@example.com", "a@b.c\nBcc: d@e.f"])
def test_what_is_no_address_is_refused(person: Person, acme: Organization, email: str) -> None:
    answer = invite(person, acme, email)
    assert answer.status_code == 400 and not mail.outbox and not Invitation.objects.exists()
    assert "Traceback" not in text_of(answer)


@pytest.mark.parametrize("role", ["", "root", "OWNER"])
def test_what_is_no_role_is_refused(person: Person, acme: Organization, role: str) -> None:
    assert invite(person, acme, NEW, role).status_code == 400 and not mail.outbox


def test_an_admin_invites_no_owner(person: Person, stranger: Person) -> None:
    acme = make_organization(person, admin=stranger)
    assert invite(stranger, acme, NEW, "owner").status_code == 400
    invite(person, acme, NEW, "owner")
    row = Invitation.objects.get(organization=acme)
    Invitation.objects.update(sent_at=timezone.now() - timedelta(hours=1))
    for what in ("resend", "withdraw"):
        client = signed_in(stranger)
        client.post(address(acme, "invitations", row.public_id, what))
        assert "Only an owner can invite an owner." in text_of(client.get(address(acme)))
    row.refresh_from_db()
    assert row.withdrawn_at is None and len(mail.outbox) == 1


def test_a_personal_organization_invites_nobody(person: Person) -> None:
    answer = invite(person, person.organization, NEW)
    assert answer.status_code == 409 and "own organization: it has no other members" in text_of(answer)
    assert not mail.outbox


def test_a_mail_that_cannot_be_sent_leaves_nothing_behind(
    person: Person, acme: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("no route to the mail server")

    monkeypatch.setattr(EmailBackend, "send_messages", fail)
    answer = invite(person, acme, NEW)
    assert answer.status_code == 503 and "The mail could not be sent, and nothing was changed." in text_of(answer)
    assert not Invitation.objects.exists() and events(acme) == ["created"]


def test_without_open_sign_up_the_page_offers_none(person: Person, acme: Organization, settings: Any) -> None:
    settings.SIGNUP_OPEN = False
    invite(person, acme, NEW)
    page = text_of(Client().get(link_to(NEW)))
    assert "Create an account" not in page and "made by whoever runs this site" in page


def test_links_begin_with_the_site_s_own_address(person: Person, acme: Organization, settings: Any) -> None:
    settings.SITE_URL = "https://chat.example.org"
    invite(person, acme, NEW)
    assert "https://chat.example.org/organization/invitations/" in mail.outbox[0].body
    assert "testserver" not in mail.outbox[0].body


@pytest.mark.django_db(transaction=True)
def test_accepted_twice_at_once_joins_once(person: Person, stranger: Person) -> None:
    acme = make_organization(person)
    invite(person, acme, stranger.user.email)
    token = token_of(link_to(stranger.user.email))
    answers = at_once(*[partial(invitations.accept, token, stranger.user, by(stranger.user))] * 4)
    assert sum(isinstance(each, Membership) for each in answers) == 1, answers
    assert sum(isinstance(each, InvitationAccepted) for each in answers) == 3, answers
    assert events(acme).count("joined") == 1


@pytest.mark.django_db(transaction=True)
def test_invited_many_times_at_once_sends_as_many_mails_as_allowed(person: Person, monkeypatch: Any) -> None:
    acme = make_organization(person)
    same = at_once(*[partial(invite, person, acme, NEW)] * 4)
    assert sorted(each.status_code for each in same) == [302, 409, 409, 409]
    monkeypatch.setattr(invitations, "PER_DAY", 3)
    others = at_once(*[partial(invite, person, acme, f"x{number}@example.com") for number in range(6)])
    assert sorted(each.status_code for each in others) == [302, 302, 429, 429, 429, 429]
    assert len(mail.outbox) == 3 == Invitation.objects.count()
    with pytest.raises(TooManyInvitations):
        Invitation.objects.update(sent_at=timezone.now() - timedelta(hours=1))
        invitations.resend(acme.pk, Invitation.objects.all()[0].pk, by(person.user))


@pytest.mark.django_db(transaction=True)
def test_withdrawn_while_it_is_accepted_is_one_or_the_other(person: Person, stranger: Person) -> None:
    acme = make_organization(person)
    invite(person, acme, stranger.user.email)
    token, row = token_of(link_to(stranger.user.email)), Invitation.objects.get()
    at_once(
        partial(invitations.accept, token, stranger.user, by(stranger.user)),
        partial(invitations.withdraw, acme.pk, row.pk, by(person.user)),
    )
    row.refresh_from_db()
    assert (row.accepted_at is None) != (row.withdrawn_at is None)
    assert (stranger.user.email in roles_in(acme)) == (row.accepted_at is not None)


def test_whoever_invited_may_be_gone(person: Person, stranger: Person, acme: Organization) -> None:
    invite(person, acme, NEW)
    Invitation.objects.update(invited_by=None)
    page = text_of(Client().get(link_to(NEW)))
    assert f"There is an invitation for {NEW} to Acme , as member." in page
    assert User.objects.count() == 2
