"""Every list is found by every id that it has or refers to, and by nothing else."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from chatsite.admin_search import parse_wanted
from chatsite.ids import new_id, public_id
from tests.admin_rows import LISTS, Rows, make_model, make_request, make_rows, signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db
ONE = UUID("01936b5e-1234-7abc-8def-0123456789ab")


@pytest.fixture
def staff(make_person: Any) -> Client:
    return signed_in(make_person("root@example.com", superuser=True).user)


@pytest.fixture
def rows(person: Person) -> Rows:
    return make_rows(person, make_model())


@pytest.fixture
def others(stranger: Person, rows: Rows) -> Rows:
    """Somebody else's, which must not be found."""
    return make_rows(stranger, rows.model)


def found(staff: Client, name: str, query: str) -> list[Any]:
    page = staff.get(reverse(f"admin:{name}_changelist"), {"q": query})
    assert page.status_code == 200
    return [row.pk for row in page.context["cl"].result_list]


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        (str(ONE), ""),
        (f"  {ONE} ", ""),
        (ONE.hex, ""),
        (str(ONE).upper(), ""),
        (f"req_{ONE}", "req"),
        (f"REQ_{ONE}", "req"),
    ],
)
def test_ids_as_people_paste_them(text: str, prefix: str) -> None:
    wanted = parse_wanted(text)
    assert wanted is not None
    assert (wanted.id, wanted.prefix) == (ONE, prefix)


@pytest.mark.parametrize(
    "text", ["", "req_", "ada@example.com", f"{ONE}x", f"req-{ONE}", "\0", f"{ONE}\0", "9" * 10_000]
)
def test_what_is_no_id(text: str) -> None:
    assert parse_wanted(text) is None


def ids_of(rows: Rows) -> dict[str, UUID]:
    return {
        "user": rows.person.user.pk,
        "org": rows.person.organization.pk,
        "key": rows.person.key.pk,
        "req": rows.request.pk,
        "msg": rows.reply.pk,
        "conv": rows.conversation.pk,
        "rep": rows.replica.pk,
        "share": rows.share.pk,
        "access": rows.access.pk,
    }


REFERS = {
    "accounts_user": ["user", "org", "key"],
    "accounts_organization": ["org", "user", "key"],
    "accounts_apikey": ["key", "user", "org"],
    "inference_request": ["req", "msg", "conv", "user", "org", "key"],
    "quotas_ledgerentry": ["req", "user", "org", "key"],
    "quotas_subscription": ["org", "user"],
    "conversations_conversation": ["conv", "msg", "req", "user", "org", "share"],
    "conversations_message": ["req"],
    "conversations_share": ["share", "conv", "user"],
    "conversations_textaccess": ["access", "conv", "user"],
}


@pytest.mark.parametrize(("name", "prefix"), [(name, each) for name, all_ in REFERS.items() for each in all_])
def test_rows_are_found_by_their_own_id_and_by_those_they_refer_to(
    staff: Client, rows: Rows, others: Rows, name: str, prefix: str
) -> None:
    identifier = ids_of(rows)[prefix]
    for query in (str(identifier), public_id(prefix, identifier)):
        assert found(staff, name, query) == [dict(rows.pages())[name]], query
    assert found(staff, name, public_id(prefix, new_id())) == []


def test_the_messages_of_a_conversation_and_the_requests_of_a_replica(staff: Client, rows: Rows, others: Rows) -> None:
    messages = {rows.question.pk, rows.reply.pk}
    for prefix in ("conv", "user", "org"):
        assert set(found(staff, "conversations_message", public_id(prefix, ids_of(rows)[prefix]))) == messages
    assert set(found(staff, "conversations_message", public_id("msg", rows.question.pk))) == messages
    assert set(found(staff, "inference_request", public_id("rep", rows.replica.pk))) == {
        rows.request.pk,
        others.request.pk,
    }
    assert found(staff, "inference_model", str(rows.replica.pk)) == [rows.model.pk]


def test_an_id_of_another_kind_finds_nothing(staff: Client, rows: Rows) -> None:
    assert found(staff, "inference_request", public_id("key", rows.request.pk)) == []
    assert found(staff, "accounts_user", public_id("req", rows.person.user.pk)) == []


@pytest.mark.parametrize("name", ["accounts_user", "accounts_apikey", "inference_request", "quotas_ledgerentry"])
def test_email_addresses(staff: Client, rows: Rows, others: Rows, name: str) -> None:
    assert found(staff, name, rows.person.user.email.upper()) == [dict(rows.pages())[name]]
    assert found(staff, name, "nobody@example.com") == []


BAD = [
    "\0", "a\0b", "x" * 10_000, "a " * 5_000, "%00", "'; DROP TABLE x; --", "\N{ROCKET}" * 150, "@" * 190, "\\",
    "9" * 40,
]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_bad_input_finds_nothing_and_breaks_nothing(staff: Client, rows: Rows, name: str) -> None:
    for query in BAD:
        assert found(staff, name, query) == [], query[:20]


QUERIES = [
    {"p": "999999"}, {"p": "x"}, {"o": "99.-7.x"}, {"all": ""}, {"e": "1"}, {"made": "\0"}, {"made": "never"},
    {"created_at__year": "99999"}, {"created_at__year": "x"}, {"model__name__exact": "\0"}, {"nonsense": "1"},
    {"status__exact": "\0"}, {"state": "x"}, {"\0": "1"}, {"is_active__exact": "x"},
    {"created_at__iso_year": "99999"}, {"created_at__year__gt": "0"}, {"name__regex": "("}, {"name__iregex": "["},
    {"id__exact": "9" * 40}, {"id__in": "x,y"}, {"created_at__gt": "x"}, {"created_at__date": "9999-99-99"},
    {"created_at__day": "31", "created_at__month": "2", "created_at__year": "2026"},
]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_hand_made_addresses_of_lists(staff: Client, rows: Rows, name: str) -> None:
    for query in QUERIES:
        assert staff.get(reverse(f"admin:{name}_changelist"), query, follow=True).status_code in (200, 400), query


KEYS = ["x", "9" * 30, "%00", "a%00b", "..", str(ONE), "req_1", "%F0%9F%92%A9", "x" * 1000]


@pytest.mark.parametrize("name", LISTS)
def test_hand_made_addresses_of_pages(staff: Client, name: str) -> None:
    for key in KEYS:
        for page in ("change", "history", "delete"):
            address = f"{reverse(f'admin:{name}_changelist')}{key}/{page}/"
            assert staff.get(address, follow=True).status_code in (200, 403, 404), address


def test_a_public_id_is_an_address(staff: Client, rows: Rows) -> None:
    address = reverse("admin:inference_request_changelist") + public_id("req", rows.request.pk) + "/change/"
    assert staff.get(address).status_code == 200


def test_a_long_list_is_not_counted_to_its_end(staff: Client, rows: Rows, monkeypatch: Any) -> None:
    monkeypatch.setattr("chatsite.admin_search.MAX_COUNTED", 3)
    for _ in range(5):
        make_request(rows.person, rows.model)
    page = staff.get(reverse("admin:inference_request_changelist"))
    assert page.context["cl"].result_count == 3


@pytest.mark.parametrize("name", LISTS)
def test_lists_ask_as_often_for_many_rows_as_for_few(
    staff: Client, make_person: Any, rows: Rows, name: str, django_assert_max_num_queries: Any
) -> None:
    address = reverse(f"admin:{name}_changelist")
    staff.get(address)  # what is asked once, such as content types
    for number in range(6):
        make_rows(make_person(f"more{number}@example.com"), rows.model)
    with django_assert_max_num_queries(13):
        assert staff.get(address).status_code == 200
