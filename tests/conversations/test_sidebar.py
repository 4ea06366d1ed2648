"""The list of conversations: its order and marks, searching it, and what is done to one conversation."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import AsyncClient
from django.utils import timezone

from chatsite.accounts.models import User
from chatsite.errors import InvalidInput
from chatsite.ids import new_id, public_id
from conversations import sidebar
from conversations.models import Conversation
from conversations.sidebar import Findings, Group, age_label, load_groups, search
from tests.conftest import Person
from tests.conversations.pages import add_turn, in_database, make_conversation

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script>\"'"


@pytest.fixture
def conversation(person: Person) -> Conversation:
    return make_conversation(person)


async def client_of(user: User, **options: bool) -> AsyncClient:
    client = AsyncClient(**options)
    await sync_to_async(client.force_login)(user)
    return client


async def post(user: User, address: str, form: dict[str, str] | None = None, **headers: str) -> HttpResponse:
    return await (await client_of(user)).post(address, form or {}, headers=HTMX | headers)


async def get(user: User, address: str, **headers: str) -> HttpResponse:
    return await (await client_of(user)).get(address, headers=HTMX | headers)


def address(conversation: Conversation, action: str = "") -> str:
    return f"/c/{public_id('conv', conversation.id)}{action}"


def labels_and_titles(groups: list[Group]) -> dict[str, list[str]]:
    return {group.label: [row.title for row in group.rows] for group in groups}


def titles(findings: Findings) -> list[str]:
    return [row.title for row in findings.rows]


def make_older(conversation: Conversation, **ago: int) -> None:
    moment = timezone.now() - timedelta(**ago)
    Conversation.objects.filter(id=conversation.id).update(updated_at=moment)


# The list


def test_conversations_are_grouped_by_age() -> None:
    today = date(2026, 3, 10)
    days = {"Today": date(2026, 3, 10), "Yesterday": date(2026, 3, 9), "Previous 7 days": date(2026, 3, 3)}
    assert {label: age_label(day, today) for label, day in days.items()} == {label: label for label in days}
    assert age_label(date(2026, 3, 2), today) == "March 2026"


def test_what_was_used_last_is_first(person: Person, stranger: Person) -> None:
    make_older(make_conversation(person, "old"), days=400)
    make_conversation(person, "")
    make_conversation(stranger, "of somebody else")
    groups = labels_and_titles(load_groups(person.session_principal))
    assert list(groups.values()) == [["New chat"], ["old"]]
    assert next(iter(groups)) == "Today"


@pytest.mark.parametrize(
    ("status", "seen", "state"),
    [
        ("pending", False, "replying"),
        ("streaming", False, "replying"),
        ("complete", False, "unread"),
        ("failed", False, "unread"),
        ("stopped", True, ""),
        ("complete", True, ""),
    ],
)
def test_a_row_says_what_became_of_the_last_reply(
    conversation: Conversation, person: Person, status: str, seen: bool, state: str
) -> None:
    reply = add_turn(conversation, "q", "a", status=status)
    if seen:
        Conversation.objects.filter(id=conversation.id).update(seen_request=reply.request_id)
    [[row]] = [group.rows for group in load_groups(person.session_principal)]
    assert row.state == state


def test_a_reply_made_anew_is_unread_again(conversation: Conversation, person: Person) -> None:
    add_turn(conversation, "q", "a")
    Conversation.objects.filter(id=conversation.id).update(seen_request=new_id())
    assert load_groups(person.session_principal)[0].rows[0].state == "unread"


async def test_marks_are_said_too_and_never_on_what_is_looked_at(conversation: Conversation, person: Person) -> None:
    await in_database(add_turn, conversation, "q", "a")
    other = await in_database(make_conversation, person, "Running")
    await in_database(add_turn, other, "q", "", status="pending")
    html = (await get(person.user, "/")).content.decode()
    assert '<span class="mark unread"></span><span class="visually-hidden">, unread</span>' in html
    assert '<span class="mark replying"></span><span class="visually-hidden">, replying</span>' in html
    shown = (await get(person.user, address(conversation))).content.decode()
    assert ", unread</span>" not in shown
    assert ", replying</span>" in shown


def make_many(person: Person, number: int) -> None:
    first = make_conversation(person, "0000")
    now = timezone.now()
    rest = [
        Conversation(
            organization=person.organization,
            user=person.user,
            model_id=first.model_id,
            title=f"{index:04}",
            updated_at=now - timedelta(hours=index),
        )
        for index in range(1, number)
    ]
    Conversation.objects.bulk_create(rest)


def test_s7_a_long_list_comes_in_pages_of_one_query_each(
    person: Person, django_assert_num_queries: Callable[[int], Any]
) -> None:
    make_many(person, 1000)
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor:
        with django_assert_num_queries(1):
            groups = load_groups(person.session_principal, cursor)
        seen += [row.title for group in groups for row in group.rows]
        assert [group.more for group in groups[:-1]] == [None] * (len(groups) - 1)
        cursor = groups[-1].more
        pages += 1
    assert seen == [f"{index:04}" for index in range(1000)]
    assert pages == 10


def test_a_time_that_goes_on_has_one_heading(person: Person) -> None:
    make_many(person, 102)  # an hour apart: the 101st is of the same group as the 100th
    first = load_groups(person.session_principal)
    [group] = load_groups(person.session_principal, first[-1].more)
    assert (group.label, group.continued, len(group.rows)) == (first[-1].label, True, 2)


async def test_the_page_asks_for_more_when_its_end_is_seen(person: Person) -> None:
    await in_database(make_many, person, 205)
    html = (await get(person.user, "/")).content.decode()
    for expected in (range(100, 200), range(200, 205)):
        [more] = re.findall(r'hx-get="(/conversations\?cursor=[^"]+)"', html)
        html = (await get(person.user, more)).content.decode()
        assert re.findall(r'class="name">(\d+)', html) == [f"{index:04}" for index in expected]
    assert "/conversations?cursor" not in html


@pytest.mark.parametrize("cursor", ["x", "2026-01-01T00:00:00Z_x", "0001-01-01T00:00:00%2B14:00_" + str(new_id())])
async def test_a_cursor_that_is_none_is_refused(person: Person, cursor: str) -> None:
    answer = await get(person.user, f"/conversations?cursor={cursor}")
    assert answer.status_code == 400
    assert "not one of this list" in answer.content.decode()


async def test_today_is_that_of_the_person(person: Person) -> None:
    made = await in_database(make_conversation, person)
    await Conversation.objects.filter(id=made.id).aupdate(updated_at="2026-03-10T20:00:00Z")
    client = await client_of(person.user)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: datetime(2026, 3, 10, 23, 0, tzinfo=UTC))
        for zone, label in (("UTC", "Today"), ("Asia%2FTokyo", "Today"), ("Europe%2FBerlin", "Yesterday")):
            client.cookies["timezone"] = zone
            assert f"<h2>{label}</h2>" in (await client.get("/")).content.decode()


# Searching


def test_titles_come_first_then_messages(person: Person) -> None:
    make_conversation(person, "Tides")
    add_turn(make_conversation(person, "Moon"), "Why are there TIDES?", "Because of the moon")
    make_conversation(person, "Rice")
    findings = search(person.session_principal, " tides ")
    assert titles(findings) == ["Tides", "Moon"]
    assert findings.rows[0].match == ""
    assert (findings.rows[1].before, findings.rows[1].match, findings.rows[1].after) == ("Why are there ", "TIDES", "?")
    assert findings.whole


def test_a_long_message_is_cut_to_what_was_found(person: Person) -> None:
    add_turn(make_conversation(person), "q", "word " * 1000 + "**needle** in the hay" + " word" * 1000)
    [row] = search(person.session_principal, "needle").rows
    assert row.before.startswith("…word")
    assert row.before.endswith("word ")
    assert row.match == "needle"
    assert row.after.startswith(" in the hay")
    assert len(row.before + row.after) < 200


@pytest.mark.parametrize("character", ["%", "_", "\\", "'", '"'])
def test_every_character_means_itself(person: Person, character: str) -> None:
    add_turn(make_conversation(person, "nothing"), "q", "a")
    add_turn(make_conversation(person, "in the title " + character), "q", "a")
    add_turn(make_conversation(person, "in the text"), "q", f"100{character}5")
    assert titles(search(person.session_principal, character)) == ["in the title " + character, "in the text"]
    assert titles(search(person.session_principal, f"0{character}5")) == ["in the text"]


def test_s32_only_ones_own_is_found(person: Person, stranger: Person) -> None:
    add_turn(make_conversation(stranger, "secret title"), "secret question", "secret answer")
    assert search(person.session_principal, "secret") == Findings([])


def test_no_more_than_a_screen_of_findings(person: Person) -> None:
    for number in range(sidebar.MAX_FOUND + 5):
        add_turn(make_conversation(person, f"needle {number}" if number % 2 else "other"), "needle", "a")
    found = search(person.session_principal, "needle").rows
    assert len(found) == sidebar.MAX_FOUND
    assert len({row.id for row in found}) == sidebar.MAX_FOUND


@pytest.mark.parametrize(("query", "why"), [("a\0b", "NUL"), ("x" * 201, "200 characters")])
def test_a_search_that_cannot_be_is_refused(person: Person, query: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        search(person.session_principal, query)


def test_a_search_that_takes_too_long_has_the_titles(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    make_conversation(person, "needle")
    monkeypatch.setattr(sidebar, "SEARCH_SECONDS", 0.05)
    monkeypatch.setattr(sidebar, "read_sql", lambda name: "SELECT pg_sleep(5)")
    findings = search(person.session_principal, "needle")
    assert titles(findings) == ["needle"]
    assert not findings.whole
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_another_fault_of_the_database_is_none_of_the_search(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(sidebar, "_search_text", away)
    with pytest.raises(OperationalError):
        search(person.session_principal, "needle")


async def test_what_is_found_is_escaped(person: Person) -> None:
    found = await in_database(make_conversation, person, HOSTILE)
    await in_database(add_turn, found, f"{HOSTILE} needle {HOSTILE}", "a")
    for query in ("needle", "<script>"):
        html = (await get(person.user, f"/search?q={query}")).content.decode()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert "<mark>needle</mark>" in (await get(person.user, "/search?q=needle")).content.decode()


async def test_nothing_found_says_so_and_nothing_asked_gives_nothing(person: Person) -> None:
    html = (await get(person.user, "/search?q=%3Cb%3E")).content.decode()
    assert "Nothing found" in html
    assert "“&lt;b&gt;”" in html
    for query in ("", "?q=", "?q=%20"):
        assert (await get(person.user, f"/search{query}")).content == b""


async def test_a_refused_search_is_a_sentence(person: Person) -> None:
    answer = await get(person.user, "/search?q=a%00b")
    assert answer.status_code == 400
    assert 'class="detail">The search contains a NUL character.' in answer.content.decode()


# Renaming and deleting


async def test_a_conversation_is_renamed(conversation: Conversation, person: Person) -> None:
    shown = f"http://testserver{address(conversation)}"
    answer = await post(
        person.user, address(conversation, "/title"), {"title": f" {HOSTILE}\n two "}, **{"HX-Current-URL": shown}
    )
    html = answer.content.decode()
    assert answer.status_code == 200
    await conversation.arefresh_from_db()
    assert conversation.title == f"{HOSTILE} two"
    assert "<script" not in html
    assert 'hx-target="#conversations"' in html
    assert 'hx-target="#title"' in html
    assert 'aria-current="page"' in html


async def test_renaming_another_one_leaves_the_title_of_the_page(conversation: Conversation, person: Person) -> None:
    answer = await post(person.user, address(conversation, "/title"), {"title": "New"}, **{"HX-Current-URL": "/"})
    assert 'hx-target="#title"' not in answer.content.decode()


@pytest.mark.parametrize(
    ("title", "why"),
    [
        ("", "at least one"),
        (" \n ", "at least one"),
        ("a\0b", "cannot be shown"),
        ("\u202eabc", "cannot be shown"),
        ("\u200b\u200b", "shows nothing"),
        ("\u3164", "shows nothing"),
        ("x" * 201, "200 characters; this one has 201"),
    ],
)
async def test_a_title_that_cannot_be_is_refused(
    conversation: Conversation, person: Person, title: str, why: str
) -> None:
    answer = await post(person.user, address(conversation, "/title"), {"title": title})
    assert answer.status_code == 400
    assert why in answer.content.decode()
    await conversation.arefresh_from_db()
    assert conversation.title == "Greetings"


async def test_deleting_takes_the_row_away(conversation: Conversation, person: Person) -> None:
    other = await in_database(make_conversation, person, "Kept")
    answer = await post(
        person.user, address(conversation, "/delete"), **{"HX-Current-URL": f"http://testserver{address(other)}"}
    )
    html = answer.content.decode()
    assert "Kept" in html
    assert "Greetings" not in html
    assert not await Conversation.objects.filter(id=conversation.id).aexists()


async def test_deleting_what_is_shown_leads_to_a_new_chat(conversation: Conversation, person: Person) -> None:
    shown = f"http://testserver{address(conversation)}?x#y"
    answer = await post(person.user, address(conversation, "/delete"), **{"HX-Current-URL": shown})
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/")


@pytest.mark.parametrize("action", ["/title", "/delete"])
async def test_s32_nobody_else_changes_it(
    conversation: Conversation, person: Person, stranger: Person, action: str
) -> None:
    assert (await post(stranger.user, address(conversation, action), {"title": "Mine"})).status_code == 404
    assert (await post(person.user, f"/c/conv_x{action}", {"title": "Mine"})).status_code == 404
    await conversation.arefresh_from_db()
    assert conversation.title == "Greetings"


@pytest.mark.parametrize("action", ["/title", "/delete"])
async def test_another_site_changes_nothing(conversation: Conversation, person: Person, action: str) -> None:
    client = await client_of(person.user, enforce_csrf_checks=True)
    assert (await client.post(address(conversation, action), {"title": "Mine"})).status_code == 403
    answer = await client.get(address(conversation, action))
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert "Nothing was changed" in answer.content.decode()
    await conversation.arefresh_from_db()
    assert conversation.title == "Greetings"


@pytest.mark.parametrize("path", ["/search?q=a", "/conversations", "/models"])
async def test_a_visitor_is_sent_to_sign_in(path: str) -> None:
    assert (await AsyncClient().get(path)).status_code == 302
    assert (await AsyncClient().get(path, headers=HTMX))["HX-Refresh"] == "true"
