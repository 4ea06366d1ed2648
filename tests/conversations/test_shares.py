"""Sharing: what is shown, to whom, and for how long."""

import re
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpResponse
from django.test import AsyncClient

from chatsite.accounts.models import User
from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import public_id
from conversations import shares
from conversations.models import Conversation, Message, Share
from conversations.shares import create_share, links_of, read_shared, revoke_share
from tests.conftest import Person
from tests.conversations.pages import add_reply, add_turn, in_database, make_conversation

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "<script>alert(1)</script>\"'"


@pytest.fixture
def conversation(person: Person) -> Conversation:
    return make_conversation(person)


@pytest.fixture
def share(conversation: Conversation, person: Person) -> Share:
    add_turn(conversation, "first question", "first answer")
    return create_share(person.session_principal, conversation.id)


async def client_of(user: User, **options: bool) -> AsyncClient:
    client = AsyncClient(**options)
    await sync_to_async(client.force_login)(user)
    return client


async def read(user: User | None, token: str) -> HttpResponse:
    client = await client_of(user) if user else AsyncClient()
    return await client.get(f"/s/{token}")


def texts(token: str, number: int = 1) -> list[str]:
    return [article.text for article in read_shared(token, number).articles]


def address(conversation: Conversation) -> str:
    return f"/c/{public_id('conv', conversation.id)}/share"


# What is shared


def test_later_messages_are_not_shared(conversation: Conversation, share: Share) -> None:
    add_turn(conversation, "second question", "second answer")
    assert texts(share.token) == ["first question", "first answer"]


def test_another_version_is_not_shared(conversation: Conversation, share: Share) -> None:
    question = Message.objects.get(content="first question")
    add_reply(conversation, question, "another answer")
    assert texts(share.token) == ["first question", "first answer"]


def test_a_running_reply_and_its_question_are_not_shared(conversation: Conversation, person: Person) -> None:
    add_turn(conversation, "q", "a")
    add_turn(conversation, "not yet", "", status="streaming")
    assert texts(create_share(person.session_principal, conversation.id).token) == ["q", "a"]


def test_a_reply_that_goes_on_is_shown_as_it_was(share: Share) -> None:
    Message.objects.filter(id=share.leaf_id).update(status="pending")
    [_, reply] = read_shared(share.token).articles
    assert (reply.text, reply.running) == ("first answer", False)


def test_what_was_added_or_renamed_later_is_not_shown(conversation: Conversation, share: Share, person: Person) -> None:
    title = read_shared(share.token).title
    Message.objects.filter(id=share.leaf_id).update(content="first answer 🌊 goes on", finish_reason="length")
    Conversation.objects.filter(id=conversation.id).update(title="Another name")
    shown = read_shared(share.token)
    assert (shown.title, [article.text for article in shown.articles]) == (title, ["first question", "first answer"])
    assert shown.articles[-1].finish_reason == ""
    assert not links_of(person.session_principal, conversation.id).up_to_date
    newer = create_share(person.session_principal, conversation.id)
    assert texts(newer.token) == ["first question", "first answer 🌊 goes on"]
    assert read_shared(newer.token).title == "Another name"


def test_there_is_something_to_share_or_nothing_is_made(conversation: Conversation, person: Person) -> None:
    for _ in range(2):
        with pytest.raises(InvalidInput, match="no finished reply"):
            create_share(person.session_principal, conversation.id)
        if conversation.active_leaf_id is None:
            add_turn(conversation, "q", "", status="pending")
    assert not Share.objects.exists()


def test_the_same_state_has_one_address(conversation: Conversation, share: Share, person: Person) -> None:
    principal = person.session_principal
    assert create_share(principal, conversation.id) == share
    assert links_of(principal, conversation.id).up_to_date
    add_turn(conversation, "q", "a")
    assert not links_of(principal, conversation.id).up_to_date
    newer = create_share(principal, conversation.id)
    assert newer.token != share.token
    assert [link.token for link in links_of(principal, conversation.id).shares] == [newer.token, share.token]
    revoke_share(principal, newer.token)
    assert create_share(principal, conversation.id).token not in (newer.token, share.token)


def test_a_long_conversation_is_shared_in_pages(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(shares, "SHARED_TURNS", 4)
    for number in range(5):
        add_turn(conversation, f"q{number}", f"a{number}")
    token = create_share(person.session_principal, conversation.id).token
    with django_assert_max_num_queries(5):
        assert texts(token) == ["q0", "a0", "q1", "a1"]
    assert texts(token, 3) == ["q4", "a4"]
    assert read_shared(token).pages == 3
    for number in (0, 4):
        with pytest.raises(NotFound):
            read_shared(token, number)


# Who reads it


async def test_people_who_are_signed_in_read_it(
    share: Share, conversation: Conversation, person: Person, stranger: Person
) -> None:
    answer = await read(stranger.user, share.token)
    html = answer.content.decode()
    assert answer.status_code == 200
    for text in ("Shared conversation", "Greetings", "first question", "first answer", "As it was on"):
        assert text in html
    assert person.user.email not in html
    for control in ("hx-ws", "Regenerate", "data-edit", "data-copy-turn", "csrf", "<form"):
        assert control not in html
    assert answer["X-Robots-Tag"] == "noindex, nofollow"
    assert answer["Referrer-Policy"] == "no-referrer"
    assert answer["Cache-Control"] == "private, no-store"


async def test_others_sign_in_unless_shares_are_public(share: Share, settings: Any) -> None:
    assert (await read(None, share.token))["Location"] == f"/accounts/login/?next=/s/{share.token}"
    settings.PUBLIC_SHARES = True
    assert "first answer" in (await read(None, share.token)).content.decode()


async def test_what_is_shared_is_escaped(conversation: Conversation, person: Person, stranger: Person) -> None:
    conversation.title = HOSTILE
    await conversation.asave()
    await in_database(add_turn, conversation, HOSTILE, f"**bold** {HOSTILE}")
    share = await in_database(create_share, person.session_principal, conversation.id)
    html = (await read(stranger.user, share.token)).content.decode()
    assert "<strong>bold</strong>" in html
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=|javascript:", html)


@pytest.mark.parametrize("token", ["x", "x" * 33, "a%00b", "%F0%9F%92%A9", "..%5Cx"])
async def test_what_is_not_there_is_not_found(share: Share, person: Person, token: str, settings: Any) -> None:
    assert (await read(person.user, token)).status_code == 404
    settings.PUBLIC_SHARES = True
    answer = await read(None, token)
    assert answer.status_code == 404
    assert answer["X-Robots-Tag"] == "noindex, nofollow"


@pytest.mark.parametrize("number", ["0", "2", "-1", "x", "99999999999", "1_0", ""])
async def test_a_page_that_is_not_there_is_not_found(share: Share, person: Person, number: str) -> None:
    assert (await read(person.user, f"{share.token}?page={number}")).status_code == 404


async def test_stopped_and_deleted_shares_are_gone(share: Share, person: Person) -> None:
    client = await client_of(person.user)
    answer = await client.post(f"/s/{share.token}/stop")
    assert share.token not in answer.content.decode()
    assert (await read(person.user, share.token)).status_code == 404
    assert (await client.post(f"/s/{share.token}/stop")).status_code == 200
    other = await in_database(create_share, person.session_principal, share.conversation_id)
    assert (await read(person.user, other.token)).status_code == 200
    await Conversation.objects.filter(id=share.conversation_id).aupdate(active_leaf=None)
    await Conversation.objects.filter(id=share.conversation_id).adelete()
    assert (await read(person.user, other.token)).status_code == 404


# The dialog


async def test_the_dialog_makes_a_link_and_shows_it(conversation: Conversation, person: Person) -> None:
    client = await client_of(person.user)
    assert "no finished reply" in (await client.post(address(conversation))).content.decode()
    await in_database(add_turn, conversation, "q", "a")
    assert "Create link" in (await client.get(address(conversation))).content.decode()
    html = (await client.post(address(conversation))).content.decode()
    [url] = re.findall(r'value="(http://testserver/s/[\w-]{22})"', html)
    assert "Create" not in html
    assert "a" in (await client.get(url.removeprefix("http://testserver"))).content.decode()
    await in_database(add_turn, conversation, "q", "a")
    assert "Create a link with the newer messages" in (await client.get(address(conversation))).content.decode()


async def test_s32_nobody_else_shares_it_or_stops_that(
    share: Share, conversation: Conversation, stranger: Person
) -> None:
    client = await client_of(stranger.user)
    assert (await client.get(address(conversation))).status_code == 404
    assert (await client.post(address(conversation))).status_code == 404
    assert (await client.post(f"/s/{share.token}/stop")).status_code == 404
    assert (await client.post("/s/nothing/stop")).status_code == 404
    assert await Share.objects.filter(revoked_at=None).acount() == 1


async def test_another_site_shares_nothing(share: Share, conversation: Conversation, person: Person) -> None:
    client = await client_of(person.user, enforce_csrf_checks=True)
    assert (await client.post(address(conversation))).status_code == 403
    assert (await client.post(f"/s/{share.token}/stop")).status_code == 403
    assert await Share.objects.filter(revoked_at=None).acount() == 1
