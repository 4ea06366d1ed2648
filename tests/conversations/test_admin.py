"""Conversations in the admin: never what was said, but for who says why."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from chatsite.accounts.models import User
from conversations.models import Conversation, Message, Share, TextAccess
from inference.models import Request
from tests.admin_rows import HOSTILE, SECRET, Rows, grant, make_model, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db
REASON = "Ticket 4711: why was the reply cut?"


@pytest.fixture
def root(make_person: Any) -> User:
    return make_person("root@example.com", superuser=True).user  # type: ignore[no-any-return]


@pytest.fixture
def staff(root: User) -> Client:
    return signed_in(root)


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model())


def read_address(rows: Rows) -> str:
    return reverse("admin:conversations_conversation_read", args=[rows.conversation.pk])


def records(rows: Rows) -> int:
    return TextAccess.objects.filter(conversation_id=rows.conversation.id).exclude(id=rows.access.id).count()


def test_the_text_is_shown_after_a_reason_and_each_time_anew(staff: Client, root: User, rows: Rows) -> None:
    page = staff.get(reverse("admin:conversations_conversation_change", args=[rows.conversation.pk]))
    assert read_address(rows) in page.content.decode()
    asked = staff.get(read_address(rows))
    assert asked.status_code == 200
    assert SECRET not in asked.content.decode()
    assert records(rows) == 0
    shown = staff.post(read_address(rows), {"reason": REASON})
    assert shown.status_code == 200
    assert shown.content.decode().count(SECRET) == 4  # title, system prompt, question, reply
    assert records(rows) == 1
    for answer in (asked, shown):
        assert "no-store" in answer["Cache-Control"]
        assert "unsafe-inline" not in answer["Content-Security-Policy"]
    assert SECRET not in staff.get(read_address(rows)).content.decode()
    assert SECRET not in staff.get(f"{read_address(rows)}?reason={REASON}").content.decode()
    html = staff.get(reverse("admin:conversations_textaccess_changelist")).content.decode()
    assert REASON in html
    assert root.email in html


def test_a_reason_that_is_none_is_refused_in_words(staff: Client, rows: Rows) -> None:
    page = staff.post(read_address(rows), {"reason": "why <b>"})
    html = page.content.decode()
    assert page.status_code == 400
    assert "Say why in 500 characters or less, at least 10 of them letters or digits" in html
    assert "why &lt;b&gt;" in html
    assert SECRET not in html
    for reason in ("\0" * 20, "x" * 100_000, ""):
        assert staff.post(read_address(rows), {"reason": reason}).status_code == 400
    assert records(rows) == 0


def test_what_was_said_is_text(staff: Client, rows: Rows) -> None:
    Message.objects.filter(id=rows.reply.id).update(content=f"{HOSTILE}\n[link](javascript:window.ran=1)")
    Conversation.objects.update(title=HOSTILE, system_prompt=HOSTILE)
    html = staff.post(read_address(rows), {"reason": f"{HOSTILE} {REASON}"}).content.decode()
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html
    assert 'href="javascript:' not in html


def test_only_who_may_reads(rows: Rows, stranger: Person) -> None:
    visitor = Client().post(read_address(rows), {"reason": REASON})
    assert visitor.status_code == 302
    assert signed_in(rows.person.user).post(read_address(rows), {"reason": REASON}, follow=True).status_code == 403
    looker = signed_in(grant(stranger.user, "conversations.view_conversation"))
    for answer in (looker.get(read_address(rows)), looker.post(read_address(rows), {"reason": REASON})):
        assert answer.status_code == 403
        assert SECRET not in answer.content.decode()
    assert records(rows) == 0
    reader = signed_in(grant(stranger.user, "conversations.read_text"))
    assert SECRET in reader.post(read_address(rows), {"reason": REASON}).content.decode()


def test_the_form_is_protected_against_other_sites(root: User, rows: Rows) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(root)
    assert client.post(read_address(rows), {"reason": REASON}).status_code == 403
    assert records(rows) == 0


def test_a_conversation_that_is_not_there(staff: Client, rows: Rows) -> None:
    address = read_address(rows).replace(str(rows.conversation.pk), str(rows.reply.pk))
    assert staff.get(address).status_code == 404
    assert staff.post(address, {"reason": REASON}).status_code == 404


@pytest.mark.parametrize(
    "name", ["conversations_conversation", "conversations_message", "conversations_share", "conversations_textaccess"]
)
def test_rows_are_neither_added_nor_changed(staff: Client, rows: Rows, name: str) -> None:
    key = dict(rows.pages())[name]
    assert staff.get(reverse(f"admin:{name}_add")).status_code == 403
    assert staff.post(reverse(f"admin:{name}_change", args=[key]), {"title": "x", "reason": "x"}).status_code == 403
    if name != "conversations_conversation":
        assert staff.post(reverse(f"admin:{name}_delete", args=[key]), {"post": "yes"}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_a_deleted_conversation_stops_what_runs_in_it(staff: Client, rows: Rows) -> None:
    Message.objects.filter(id=rows.reply.id).update(status="streaming")
    Request.objects.filter(id=rows.request.id).update(status="queued", finished_at=None, released_at=None)
    address = reverse("admin:conversations_conversation_delete", args=[rows.conversation.pk])
    assert "Messages: 2" in staff.get(address).content.decode()
    assert staff.post(address, {"post": "yes"}).status_code == 302
    assert not Conversation.objects.filter(id=rows.conversation.id).exists()
    assert Request.objects.get(id=rows.request.id).status == "cancelled"
    assert not LogEntry.objects.filter(object_repr__contains=SECRET).exists()


def test_deleting_needs_its_right(rows: Rows, stranger: Person) -> None:
    client = signed_in(grant(stranger.user, "conversations.view_conversation"))
    address = reverse("admin:conversations_conversation_delete", args=[rows.conversation.pk])
    assert client.post(address, {"post": "yes"}).status_code == 403


def test_a_share_is_revoked(staff: Client, rows: Rows) -> None:
    act = {"action": "revoke", "_selected_action": [str(rows.share.pk)]}
    assert staff.post(reverse("admin:conversations_share_changelist"), act).status_code == 302
    assert Share.objects.get(pk=rows.share.pk).revoked_at is not None
