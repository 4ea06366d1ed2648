"""Texts of stateless calls are kept only where an organization asked for it, for as long as it wishes."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, transaction
from django.urls import reverse
from django.utils import timezone

from chatsite.errors import InvalidInput, NotFound, PermissionDenied
from chatsite.ids import new_id
from inference import keeping
from inference.keeping import forget_old, keep, note_answer, read_with_reason
from inference.models import CallReading, KeptCall, TextKeeping
from inference.protocol import Role, Turn
from inference.tasks import forget_kept_calls
from tests.admin_rows import SECRET, grant, make_kept, make_model, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db
REASON = "Ticket 4711: why was the answer cut?"


@pytest.fixture
def kept(person: Person) -> KeptCall:
    return make_kept(person, make_model())


@pytest.fixture
def reader(stranger: Person) -> Person:
    grant(stranger.user, "inference.read_call", "inference.view_keptcall")
    return stranger


@pytest.mark.parametrize(
    ("prompt", "stored"),
    [
        ("Once", "Once"),
        ([1, 2], [1, 2]),
        (
            [Turn(Role.SYSTEM, "s"), Turn(Role.USER, "u")],
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        ),
    ],
)
def test_prompts_of_every_kind_are_kept(person: Person, prompt: Any, stored: Any) -> None:
    call_id = keep(new_id(), person.principal, "small", prompt)
    note_answer(call_id, "a river")
    row = KeptCall.objects.get(id=call_id)
    assert (row.prompt, row.answer) == (stored, "a river")
    assert (row.organization_id, row.user_id, row.api_key_id) == (person.organization.id, person.user.id, person.key.id)


def test_what_is_too_old_or_not_wished_for_any_more_is_forgotten(person: Person, stranger: Person) -> None:
    TextKeeping.objects.create(organization=person.organization, days=7)
    TextKeeping.objects.create(organization=stranger.organization, days=30)

    def aged(whose: Person, days: float) -> Any:
        call_id = keep(new_id(), whose.principal, "small", "x")
        KeptCall.objects.filter(id=call_id).update(created_at=timezone.now() - timedelta(days=days))
        return call_id

    old, young, others = aged(person, 7.1), aged(person, 6.9), aged(stranger, 29)
    assert forget_old() == 1
    assert set(KeptCall.objects.values_list("id", flat=True)) == {young, others}
    assert old not in (young, others)
    TextKeeping.objects.filter(organization=person.organization).delete()
    forget_kept_calls()
    assert list(KeptCall.objects.values_list("id", flat=True)) == [others]


def test_an_answer_to_a_call_that_was_forgotten_is_no_error() -> None:
    note_answer(new_id(), "late")


def test_a_reading_says_who_what_and_why(kept: KeptCall, reader: Person) -> None:
    found = read_with_reason(reader.user, kept.id, f" {REASON}\n")
    assert found.turns == [("user", SECRET), ("answer", SECRET)]
    record = CallReading.objects.latest("id")
    assert record == found.record
    assert (record.staff_id, record.staff_email, record.call_id, record.reason) == (
        reader.user.id,
        reader.user.email,
        kept.id,
        REASON,
    )


def test_without_a_reason_or_the_right_there_is_no_text(kept: KeptCall, reader: Person, person: Person) -> None:
    before = CallReading.objects.count()
    for reason in ("", "too short", "x" * 501):
        with pytest.raises(InvalidInput):
            read_with_reason(reader.user, kept.id, reason)
    with pytest.raises(PermissionDenied):
        read_with_reason(person.user, kept.id, REASON)
    with pytest.raises(NotFound):
        read_with_reason(reader.user, new_id(), REASON)
    assert CallReading.objects.count() == before


def test_the_record_cannot_be_changed(kept: KeptCall) -> None:
    for change in (lambda: CallReading.objects.update(reason="none"), lambda: CallReading.objects.all().delete()):
        with pytest.raises(Error, match="append-only"), transaction.atomic():
            change()


def test_the_admin_shows_the_text_only_in_answer_to_a_reason(kept: KeptCall, reader: Person) -> None:
    client = signed_in(reader.user)
    for address in (
        reverse("admin:inference_keptcall_changelist"),
        reverse("admin:inference_keptcall_change", args=[kept.id]),
        reverse("admin:inference_keptcall_read", args=[kept.id]),
    ):
        page = client.get(address)
        assert page.status_code == 200
        assert SECRET not in page.content.decode()
    address = reverse("admin:inference_keptcall_read", args=[kept.id])
    refused = client.post(address, {"reason": "why"})
    assert (refused.status_code, SECRET in refused.content.decode()) == (400, False)
    shown = client.post(address, {"reason": REASON})
    assert SECRET in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    assert client.get(reverse("admin:inference_keptcall_read", args=[new_id()])).status_code == 404


def test_looking_at_the_list_gives_no_right_to_read(kept: KeptCall, stranger: Person) -> None:
    client = signed_in(grant(stranger.user, "inference.view_keptcall"))
    assert client.get(reverse("admin:inference_keptcall_read", args=[kept.id])).status_code == 403


def test_keeping_is_switched_on_and_off_in_the_admin(person: Person, make_person: Any) -> None:
    client = signed_in(make_person("root@example.com", superuser=True).user)
    added = client.post(
        reverse("admin:inference_textkeeping_add"), {"organization": str(person.organization.pk), "days": "14"}
    )
    assert added.status_code == 302, added.content.decode()[-3000:]
    assert keeping._days(person.organization.id) == 14
    too_long = client.post(
        reverse("admin:inference_textkeeping_change", args=[person.organization.pk]), {"days": "366"}
    )
    assert too_long.status_code == 200
    client.post(reverse("admin:inference_textkeeping_delete", args=[person.organization.pk]), {"post": "yes"})
    assert keeping._days(person.organization.id) == 0


def test_the_page_of_an_organization_tells_whether_texts_are_kept(person: Person, stranger: Person) -> None:
    page = reverse("organization", args=[person.organization.public_id])
    client = signed_in(person.user)
    answer = client.get(page).content.decode()
    assert "Not kept" in answer
    TextKeeping.objects.create(organization=stranger.organization, days=7)
    assert "Not kept" in client.get(page).content.decode()
    keeping = TextKeeping.objects.create(organization=person.organization, days=1)
    answer = client.get(page).content.decode()
    assert f"Kept for 1 day, since {keeping.since.day} " in answer
    assert "Not kept" not in answer
