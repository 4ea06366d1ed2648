"""A conversation begins with its first message, once, or not at all."""

import re
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from chatsite.errors import IdempotencyMismatch, RateLimited
from conversations import views
from conversations.models import Conversation, Message
from inference import selectors as inference_selectors
from inference.errors import HighDemand
from inference.models import Model
from quotas.selectors import aplan_of
from tests.conftest import Person
from tests.conversations.pages import add_turn, in_database, make_model
from tests.conversations.test_views import HTMX, client_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent, through a stand-in for the service."""
    contents: list[str] = []

    async def send(principal: Any, conversation_id: Any, content: str, *, remember: Any) -> None:
        contents.append(content)
        found = await Conversation.objects.aget(id=conversation_id)
        reply = await in_database(add_turn, found, content, "", status="pending", finish_reason="")
        await in_database(remember, reply.id, None)

    monkeypatch.setattr(views.services, "send", send)
    make_model()
    return contents


async def test_a_new_chat_begins_with_its_first_message(person: Person, sent: list[str]) -> None:
    client = await client_of(person.user)
    answer = await client.post("/", {"content": "Hi <b>"}, headers=HTMX)
    html = answer.content.decode()
    assert sent == ["Hi <b>"]
    assert re.fullmatch(r"/c/conv_[0-9a-f-]{36}", answer["HX-Push-Url"])
    assert f'hx-ws:connect="/ws{answer["HX-Push-Url"]}/"' in html
    assert 'hx-target="#conversations"' in html
    assert "Hi &lt;b&gt;" in html


async def test_a_first_message_that_is_sent_again_begins_one_conversation(person: Person, sent: list[str]) -> None:
    client = await client_of(person.user)
    form = {"content": "Hi", "model": "tiny", "id": "3f2a-1"}
    first, second = [await client.post("/", form, headers=HTMX) for _ in range(2)]
    assert sent == ["Hi"]
    assert first["HX-Push-Url"] == second["HX-Push-Url"]
    assert second.content.decode().count(">Hi</div>") == 1
    other = await client.post("/", form | {"content": "Bye"}, headers=HTMX)
    assert other.status_code == IdempotencyMismatch.status
    assert (await client.post("/", form | {"id": "3f2a-2"}, headers=HTMX))["HX-Push-Url"] != first["HX-Push-Url"]
    assert sent == ["Hi", "Hi"]


async def test_a_first_message_that_was_refused_may_be_sent_again_with_its_id(
    person: Person, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: Any, **kwargs: Any) -> None:
        raise RateLimited

    client = await client_of(person.user)
    with monkeypatch.context() as patch:
        patch.setattr(views.services, "send", refuse)
        assert (await client.post("/", {"content": "Hi", "id": "1"}, headers=HTMX)).status_code == 429
    assert (await client.post("/", {"content": "Hi", "id": "1"}, headers=HTMX)).status_code == 200


async def test_without_scripts_it_is_an_ordinary_form(person: Person, sent: list[str]) -> None:
    client = await client_of(person.user)
    answer = await client.post("/", {"content": "Hi", "model": "tiny"})
    assert answer.status_code == 302
    assert (await client.get(answer["Location"])).status_code == 200


async def test_another_site_cannot_begin_one(person: Person, sent: list[str]) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    await sync_to_async(client.force_login)(person.user)
    answer = await client.post("/", {"content": "Hi"}, headers={"origin": "https://evil.example"})
    assert answer.status_code == 403
    assert sent == []


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"content": " \n"}, 400),
        ({"content": "a\0b"}, 400),
        ({"content": "x" * 300_000}, 413),
        ({"content": "Hi", "model": "nonsense"}, 400),
        ({"content": "Hi", "model": "a\0b"}, 400),
    ],
    ids=["nothing", "blank", "NUL", "too long", "unknown model", "NUL in the model"],
)
async def test_what_cannot_be_sent_leaves_nothing_behind(
    person: Person, sent: list[str], form: dict[str, str], status: int
) -> None:
    answer = await (await client_of(person.user)).post("/", form, headers=HTMX)
    assert answer.status_code == status
    assert 'class="detail"' in answer.content.decode()
    assert sent == []
    assert not await Conversation.objects.aexists()


async def test_over_quota_says_when_to_try_again_and_leaves_nothing_behind(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: Any, **kwargs: Any) -> None:
        raise RateLimited("1,000 tokens a minute are used up.", retry_after=19.2)

    await in_database(make_model)
    monkeypatch.setattr(views.services, "send", refuse)
    answer = await (await client_of(person.user)).post("/", {"content": "Hi"}, headers=HTMX)
    assert answer.status_code == 429
    assert answer["Retry-After"] == "20"
    html = answer.content.decode()
    assert "Try again in 20 s." in html
    assert 'hx-target="#meters"' in html  # which shows how much is used up
    assert not await Conversation.objects.aexists()
    assert not await Message.objects.aexists()


async def test_in_a_crowd_the_plan_and_the_smaller_model_are_named_and_the_seconds_once(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: Any, **kwargs: Any) -> None:
        raise HighDemand("High demand. Try again in 24 s.", retry_after=24)

    async def sooner(name: str, organization_id: UUID, tokens: int, seconds: float) -> Model:
        assert (name, organization_id, seconds) == ("tiny", person.organization.id, 24)
        return Model(name="small", title="<Small>")

    await in_database(make_model)
    monkeypatch.setattr(views.services, "send", refuse)
    monkeypatch.setattr(inference_selectors, "sooner_model", sooner)
    answer = await (await client_of(person.user)).post("/", {"content": "Hi", "model": "tiny"}, headers=HTMX)
    html = answer.content.decode()
    plan = (await aplan_of(person.organization.id)).name
    assert f"High demand on the {plan} plan. Try again in 24 s. <button" in html
    assert 'data-smaller="small" hidden>Use &lt;Small&gt; instead</button>' in html
