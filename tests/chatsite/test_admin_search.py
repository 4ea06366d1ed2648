"""Every list is found by every id that it has or refers to, and by nothing else."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from chatsite.admin_search import SearchableAdmin, parse_wanted
from chatsite.ids import new_id, public_id
from tests.admin_rows import LISTS, SINGLE_PAGES, Rows, make_model, make_request, make_rows, signed_in
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


@pytest.mark.parametrize("name", [*LISTS, *SINGLE_PAGES])
def test_hand_made_addresses_of_lists(staff: Client, rows: Rows, name: str) -> None:
    for query in QUERIES:
        assert staff.get(reverse(f"admin:{name}_changelist"), query, follow=True).status_code in (200, 400), query


KEYS = ["x", "9" * 30, "%00", "a%00b", "..", str(ONE), "req_1", "%F0%9F%92%A9", "x" * 1000]


@pytest.mark.parametrize("name", [*LISTS, *SINGLE_PAGES])
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


SHOWN_NOWHERE = {
    "session_key", "token", "digest", "content", "title", "system_prompt", "extra_data", "password", "data",
    "user_agent", "sampling", "cache_salt", "token_ids", "error_message",
}  # fmt: skip
WAYS = ["", "__exact", "__startswith", "__icontains", "__gte", "__isnull", "__in"]


@pytest.mark.parametrize("row_admin", admin.site._registry.values(), ids=lambda each: each.opts.label_lower)
def test_a_list_is_filtered_only_by_what_it_offers(staff: Client, rows: Rows, row_admin: Any) -> None:
    """Anything else could be read out a letter at a time, by whether rows are found."""
    opts = row_admin.opts
    assert isinstance(row_admin, SearchableAdmin), "a list of its own kind would not be guarded"
    chosen = [each for each in row_admin.list_filter if isinstance(each, str | tuple)]
    filters = {each if isinstance(each, str) else each[0] for each in chosen}
    offered = {*filters, row_admin.date_hierarchy, "id", opts.pk.name}
    parameters = {each.parameter_name for each in row_admin.list_filter if isinstance(each, type)}
    names = {field.name for field in opts.get_fields()} - offered - parameters
    related = {f"{name}__{secret}" for name in {field.name for field in opts.get_fields()} for secret in SHOWN_NOWHERE}
    address = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    asked = staff.get(address).wsgi_request
    for name in names | SHOWN_NOWHERE | related:
        assert not [way for way in WAYS if row_admin.lookup_allowed(f"{name}{way}", "1", asked)], name
    for name in SHOWN_NOWHERE:
        assert staff.get(address, {f"{name}__startswith": "a"}).status_code == 400, name


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("quotas_subscription", {"plan__id__exact": "%plan"}),
        ("inference_replica", {"model__name__exact": "small"}),
        ("inference_request", {"model__name__exact": "small"}),
        ("inference_request", {"status__exact": "succeeded", "made": "day"}),
        ("conversations_share", {"revoked_at__isempty": "1"}),
        ("conversations_message", {"role__exact": "user", "model__isnull": "True"}),
        ("accounts_user", {"is_active__exact": "1", "verified": "yes", "created_at__year": "%year"}),
        ("accounts_apikey", {"state": "active", "id": "%key", "created_at__gte": "2020-01-01"}),
        ("usersessions_usersession", {"last_seen_at__year": "%year", "last_seen_at__month": "1"}),
    ],
)
def test_the_filters_that_a_list_offers_work(staff: Client, rows: Rows, name: str, query: dict[str, str]) -> None:
    plan = rows.person.organization.subscription.plan_id  # type: ignore[attr-defined]
    values = {"%plan": str(plan), "%key": str(rows.person.key.pk), "%year": str(rows.request.created_at.year)}
    page = staff.get(reverse(f"admin:{name}_changelist"), {key: values.get(each, each) for key, each in query.items()})
    assert page.status_code == 200


BAD_KEYS = ["1", "x", "\0", "9" * 40, "\u202e", ""]


@pytest.mark.parametrize("row_admin", admin.site._registry.values(), ids=lambda each: each.opts.label_lower)
def test_actions_on_hand_made_keys_break_nothing(staff: Client, rows: Rows, row_admin: Any) -> None:
    opts = row_admin.opts
    address = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    actions = [*row_admin.get_actions(staff.get(address).wsgi_request), "delete_selected", "nothing"]
    for action in actions:
        for key in BAD_KEYS:
            answer = staff.post(address, {"action": action, "_selected_action": [key]})
            assert answer.status_code in (200, 302, 400, 403), (action, key)
