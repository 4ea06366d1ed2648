"""The page as it is served: to whom, with what, and nothing that could run."""

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db.backends.utils import CursorWrapper
from django.http import HttpResponse
from django.test import AsyncClient

from chatsite.accounts.models import User
from chatsite.ids import public_id
from conversations import articles, pages
from conversations.articles import PAGE_SIZE
from conversations.markdown import render_markdown
from conversations.models import Conversation
from conversations.shares import create_share
from inference.selectors import ModelInfo
from tests.conftest import PASSWORD, Person
from tests.conversations.pages import add_turn, in_database, make_conversation

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script>\"'"


@pytest.fixture
def conversation(person: Person) -> Conversation:
    return make_conversation(person)


async def client_of(user: User) -> AsyncClient:
    client = AsyncClient()
    await sync_to_async(client.force_login)(user)
    return client


async def page(user: User, address: str, **headers: str) -> HttpResponse:
    return await (await client_of(user)).get(address, headers=headers)


def address(conversation: Conversation) -> str:
    return f"/c/{public_id('conv', conversation.id)}"


async def test_a_visitor_is_sent_to_sign_in_and_back(conversation: Conversation) -> None:
    answer = await AsyncClient().get(address(conversation))
    assert answer.status_code == 302
    assert answer["Location"] == f"/accounts/login/?next={address(conversation)}"


async def test_a_page_whose_session_ended_is_reloaded(conversation: Conversation) -> None:
    answer = await AsyncClient().get("/models/tiny/state", headers=HTMX)
    assert answer["HX-Refresh"] == "true"
    assert answer.status_code == 401


async def test_signing_in_and_out(person: Person) -> None:
    client = AsyncClient()
    form = {"login": person.user.email, "password": "wrong"}
    assert (await client.post("/accounts/login/", form)).status_code == 200
    answer = await client.post("/accounts/login/", form | {"password": PASSWORD, "next": "/"})
    assert answer["Location"] == "/"
    assert (await client.get("/")).status_code == 200
    await client.post("/accounts/logout/")
    assert (await client.get("/")).status_code == 302


async def test_signing_in_leads_nowhere_else(person: Person) -> None:
    form = {"login": person.user.email, "password": PASSWORD, "next": "https://evil.example/"}
    assert (await AsyncClient().post("/accounts/login/", form))["Location"] == "/"


async def test_a_conversation_is_shown_with_its_messages(conversation: Conversation, person: Person) -> None:
    await in_database(add_turn, conversation, HOSTILE, f"**bold** {HOSTILE}")
    answer = await page(person.user, address(conversation))
    html = answer.content.decode()
    assert answer.status_code == 200
    assert "<strong>bold</strong>" in html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert f'hx-ws:connect="/ws/c/{public_id("conv", conversation.id)}/"' in html
    assert 'aria-current="page"' in html


async def test_a_page_is_rendered_beside_the_event_loop(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def render(text: str) -> str:
        threads.append(threading.current_thread())
        return render_markdown(text)

    monkeypatch.setattr(articles, "render_markdown", render)
    reply = await in_database(add_turn, conversation, "q", "a")
    await in_database(add_turn, conversation, "q", "a")
    share = await in_database(create_share, person.session_principal, conversation.id)
    shown = address(conversation)
    for path in (
        shown,
        f"{shown}/earlier?cursor={public_id('msg', conversation.active_leaf_id)}",
        f"{shown}/turns/{public_id('msg', reply.id)}",
        f"/s/{share.token}",
    ):
        threads.clear()
        assert (await page(person.user, path, **HTMX)).status_code == 200
        assert threads
        assert threading.main_thread() not in threads


async def test_s1_a_running_reply_is_shown_with_where_it_stands(conversation: Conversation, person: Person) -> None:
    reply = await in_database(
        add_turn, conversation, "q", "So far", status="streaming", finish_reason="", tokens=2, token_ids=b"\0" * 8
    )
    html = (await page(person.user, address(conversation))).content.decode()
    assert f'data-cursor="{reply.request_id}.2.6"' in html
    assert ">So far</div>" in html
    assert '"type": "stop"' in html


async def test_s34_the_page_has_no_inline_script_and_a_policy(conversation: Conversation, person: Person) -> None:
    conversation.title = HOSTILE
    await conversation.asave()
    await in_database(add_turn, conversation, "q", "a", status="failed", error_message=HOSTILE)
    answer = await page(person.user, address(conversation))
    html = answer.content.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=|javascript:", html)
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/c/conv_x", "/c/x", "/c/conv_018f3a3e-0000-7000-8000-000000000000", "/nowhere"])
async def test_what_is_not_there_is_a_page_of_its_own(person: Person, path: str) -> None:
    answer = await page(person.user, path)
    assert answer.status_code == 404
    assert "Go to your conversations" in answer.content.decode()


async def test_s32_another_users_conversation_is_not_there(conversation: Conversation, stranger: Person) -> None:
    await in_database(add_turn, conversation, "q", "secret")
    for path in (address(conversation), f"{address(conversation)}/earlier"):
        answer = await page(stranger.user, path)
        assert answer.status_code == 404
        assert "secret" not in answer.content.decode()


async def test_s7_the_newest_page_is_shown_and_earlier_ones_later(conversation: Conversation, person: Person) -> None:
    for number in range(PAGE_SIZE // 2 + 5):
        await in_database(add_turn, conversation, f"question {number:02}", "a")
    html = (await page(person.user, address(conversation))).content.decode()
    assert "question 04" not in html
    assert "question 05" in html
    [more] = re.findall(r'hx-get="(/c/[^"]+/earlier\?cursor=msg_[^"]+)"', html)
    earlier = (await page(person.user, more, **HTMX)).content.decode()
    assert earlier.index("question 00") < earlier.index("question 04")
    assert "question 05" not in earlier
    assert "hx-get" not in earlier
    assert (await page(person.user, f"{address(conversation)}/earlier?cursor=msg_x")).status_code == 400


async def test_a_turn_is_fetched_alone(conversation: Conversation, person: Person, stranger: Person) -> None:
    reply = await in_database(add_turn, conversation, "q", "**bold**")
    turn = f"{address(conversation)}/turns/{public_id('msg', reply.id)}"
    html = (await page(person.user, turn, **HTMX)).content.decode()
    assert html.strip().startswith(f'<article id="{public_id("msg", reply.id)}"')
    assert "<strong>bold</strong>" in html
    elsewhere = await in_database(make_conversation, person, "Another")
    for user, path in (
        (stranger.user, turn),
        (person.user, f"{address(elsewhere)}/turns/{public_id('msg', reply.id)}"),
        (person.user, f"{address(conversation)}/turns/x"),
    ):
        assert (await page(user, path, **HTMX)).status_code == 404


# Models


def model_info(name: str, **changes: Any) -> ModelInfo:
    about = {"title": name.title(), "context_length": 4096, "tiers": ["free", "paid", "enterprise"], "state": "ready"}
    return ModelInfo(**({"name": name} | about | changes))


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says which models there are."""

    def offer(*models: ModelInfo) -> None:
        async def models_for(tier: str | None) -> list[ModelInfo]:
            return [model for model in models if tier is None or tier in model.tiers]

        monkeypatch.setattr(pages, "models_for", models_for)

    return offer


@pytest.mark.parametrize(
    ("state", "text", "asks_again"),
    [("loading", ">loading</span>", True), ("down", ">not available</span>", True), ("ready", "Org/Tiny", False)],
)
async def test_a_model_that_is_not_ready_is_said(
    person: Person, offer: Callable[..., None], state: str, text: str, asks_again: bool
) -> None:
    offer(model_info("org/tiny", state=state))
    for path in ("/", "/models/org%2Ftiny/state"):
        html = (await page(person.user, path)).content.decode()
        assert text in html or path != "/"
        assert ('hx-get="/models/org%2Ftiny/state"' in html) is asks_again


async def test_an_unknown_model_has_no_state(person: Person) -> None:
    assert (await page(person.user, "/models/none/state")).status_code == 404


def radios(html: str) -> dict[str, str]:
    """model -> checked, disabled or empty"""
    found = re.findall(r'<input type="radio"[^>]*?value="([^"]*)"[^>]*?class="visually-hidden"([^>]*)>', html)
    return {name: rest.strip() for name, rest in found if name}


async def test_the_menu_says_what_each_model_is_and_who_may_use_it(person: Person, offer: Callable[..., None]) -> None:
    offer(
        model_info("tiny", description="Small & quick", state="loading"),
        model_info("large", tiers=["free", "paid"], context_length=128_000),
        model_info("huge", tiers=["enterprise"]),
    )
    html = (await page(person.user, "/")).content.decode()
    assert radios(html) == {"tiny": "checked", "large": "", "huge": "disabled"}
    for text in (
        "Small &amp; quick",
        "Loading",
        "4,096 tokens",
        "128,000 tokens",
        "All plans",
        "On the enterprise plan",
    ):
        assert text in html
    assert "On the free and paid plans" in html


async def test_a_new_chat_begins_with_the_model_that_was_chosen_last(
    person: Person, offer: Callable[..., None]
) -> None:
    offer(model_info("tiny"), model_info("org/large"), model_info("huge", tiers=["enterprise"]))
    client = await client_of(person.user)
    for cookie, chosen in (("org%2Flarge", "org/large"), ("huge", "tiny"), ("<b>", "tiny")):
        client.cookies["model"] = cookie
        html = (await client.get("/")).content.decode()
        assert radios(html)[chosen] == "checked"
        assert cookie == "<b>" or html.count("checked") == 1


async def test_the_menu_is_asked_for_anew_with_the_choice(person: Person, offer: Callable[..., None]) -> None:
    offer(model_info("tiny"), model_info("large", state="down"))
    html = (await page(person.user, "/models?model=large", **HTMX)).content.decode()
    assert radios(html) == {"tiny": "", "large": "checked"}
    assert "Not available" in html


async def test_without_a_model_the_page_is_still_there(person: Person, offer: Callable[..., None]) -> None:
    offer(model_info("huge", tiers=["enterprise"]))
    html = (await page(person.user, "/")).content.decode()
    assert "No model" in html
    assert radios(html) == {"huge": "disabled"}


# Cost


async def test_s7_a_page_costs_as_many_queries_with_much_as_with_little(
    conversation: Conversation, person: Person
) -> None:
    await in_database(add_turn, conversation, "q", "a")
    client = await client_of(person.user)
    few = await queries_of(client, address(conversation))
    for number in range(30):
        await in_database(add_turn, conversation, f"question {number}", "a")
        await in_database(add_turn, await in_database(make_conversation, person, f"Other {number}"), "q", "a")
    many = await queries_of(client, address(conversation))
    assert many <= few
    assert many <= 16


async def queries_of(client: AsyncClient, path: str) -> int:
    """How many statements one answer takes; they come from several threads, each with a connection of its own."""
    statements = 0
    execute = CursorWrapper.execute

    def count(self: CursorWrapper, sql: Any, params: Any = None) -> Any:
        nonlocal statements
        statements += 1
        return execute(self, sql, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CursorWrapper, "execute", count)
        assert (await client.get(path)).status_code == 200
    return statements


async def test_the_icon_is_there_for_what_asks_unprompted() -> None:
    answer = await AsyncClient().get("/favicon.ico")
    assert answer["Location"].endswith("/static/favicon.svg")


async def test_a_host_that_is_not_ours_is_refused_in_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answer = await AsyncClient().get("/", headers={"host": "evil.example"})
    html = answer.content.decode()
    assert answer.status_code == 400
    assert "does not answer to that host name" in html
    assert "href=" not in html.partition("<main")[2]  # it would lead here again
    [refusal] = [record for record in caplog.records if record.name == "django.security.DisallowedHost"]
    assert refusal.exc_info is None
