"""What was said is read with a reason that is kept."""

import pytest
from django.db import Error, transaction

from chatsite.errors import InvalidInput, NotFound, PermissionDenied
from chatsite.ids import new_id
from conversations.models import Message, TextAccess
from conversations.reading import read_with_reason
from inference.models import Partial
from tests.admin_rows import SECRET, Rows, grant, make_model, make_rows
from tests.conftest import Person

pytestmark = pytest.mark.django_db
REASON = "Ticket 4711: why was the reply cut?"


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model())


def records(rows: Rows) -> list[TextAccess]:
    """Of this conversation, without the one that the rows come with."""
    return list(TextAccess.objects.filter(conversation_id=rows.conversation.id).exclude(id=rows.access.id))


@pytest.fixture
def reader(stranger: Person) -> Person:
    grant(stranger.user, "conversations.read_text")
    return stranger


def test_the_record_says_who_what_and_why(rows: Rows, reader: Person) -> None:
    found = read_with_reason(reader.user, rows.conversation.id, f"  {REASON}\n ")
    assert [turn.content for turn in found.turns] == [SECRET, SECRET]
    assert [turn.role for turn in found.turns] == ["user", "assistant"]
    assert (found.title, found.system_prompt, found.others) == (SECRET, SECRET, 0)
    [record] = records(rows)
    assert record == found.record
    assert (record.staff_id, record.staff_email, record.reason) == (reader.user.id, reader.user.email, REASON)


@pytest.mark.parametrize(
    "reason",
    [
        "", "   ", "too short", "\n\t \n" * 50, "x" * 501, "why\0 this is not text", "a        b       c",
        "\u200b" * 20, "\u3164" * 20, "\u115f\u1160\uffa0" * 10, "." * 20, "- ! ? - ! ? - ! ?", "\u0301" * 20,
        "\u202ewhy is this reversed", "why \u2066was this cut short",
    ],
)  # fmt: skip
def test_without_a_reason_there_is_no_text(rows: Rows, reader: Person, reason: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_with_reason(reader.user, rows.conversation.id, reason)
    assert raised.value.param == "reason"
    assert records(rows) == []


@pytest.mark.parametrize(
    "reason", ["x" * 10, "x" * 500, "<script>alert(1)</script>", "\u6587\u5b57" * 5, "Ticket 4711 \u2764\ufe0f"]
)
def test_reasons_at_the_limits(rows: Rows, reader: Person, reason: str) -> None:
    assert read_with_reason(reader.user, rows.conversation.id, reason).record.reason == reason


def test_others_may_not(rows: Rows, stranger: Person, make_person: object) -> None:
    for user in (stranger.user, rows.person.user, grant(stranger.user, "conversations.view_conversation")):
        with pytest.raises(PermissionDenied):
            read_with_reason(user, rows.conversation.id, REASON)
    assert records(rows) == []


def test_nor_may_somebody_who_was_deactivated(rows: Rows, reader: Person) -> None:
    reader.user.is_active = False
    with pytest.raises(PermissionDenied):
        read_with_reason(reader.user, rows.conversation.id, REASON)


def test_a_conversation_that_is_gone(reader: Person) -> None:
    with pytest.raises(NotFound):
        read_with_reason(reader.user, new_id(), REASON)
    assert not TextAccess.objects.exists()


def test_no_record_no_text(rows: Rows, reader: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_values: object) -> None:
        raise Error("disk full")

    monkeypatch.setattr(TextAccess.objects, "create", fail)
    with pytest.raises(Error):
        read_with_reason(reader.user, rows.conversation.id, REASON)


def test_the_record_cannot_be_changed(rows: Rows, reader: Person) -> None:
    record = read_with_reason(reader.user, rows.conversation.id, REASON).record
    for change in (record.delete, lambda: TextAccess.objects.filter(id=record.id).update(reason="other")):
        with pytest.raises(Error, match="append-only"), transaction.atomic():
            change()
    assert TextAccess.objects.get(id=record.id).reason == REASON


def test_the_record_outlives_the_conversation(rows: Rows, reader: Person) -> None:
    record = read_with_reason(reader.user, rows.conversation.id, REASON).record
    rows.conversation.delete()
    assert TextAccess.objects.filter(id=record.id).exists()


def test_other_versions_are_counted_and_a_running_reply_is_read(rows: Rows, reader: Person) -> None:
    Message.objects.create(conversation=rows.conversation, parent=rows.question, role="assistant", content="other")
    Message.objects.filter(id=rows.reply.id).update(status="streaming", content="so ")
    Partial.objects.create(
        request_id=rows.request.id, attempt=1, from_token=0, to_token=1, from_char=0, ids=b"\1\0\0\0", text="far"
    )
    found = read_with_reason(reader.user, rows.conversation.id, REASON)
    assert found.turns[-1].content == "so far"
    assert found.others == 1
