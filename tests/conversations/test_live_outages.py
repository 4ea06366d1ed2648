"""What an open page is shown while the database is away, and after."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError

from chatsite import notices
from chatsite.ids import public_id
from conversations import consumers, follow, live
from conversations.follow import Token
from conversations.models import Conversation
from inference.protocol import Cursor
from tests.conftest import Person
from tests.conversations.live_pages import conversation, done, finish, script
from tests.conversations.pages import Script, add_turn, connected, in_database
from tests.waiting import wait_until

__all__ = ["conversation", "script"]
pytestmark = pytest.mark.django_db(transaction=True)


class Outage:
    """Makes reads fail as they do while PostgreSQL restarts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.failures = 0
        monkeypatch.setattr(follow, "AWAY_SECONDS", 0.02)
        for name in ("load_article", "load_branch"):
            monkeypatch.setattr(live, name, self._failing(getattr(live, name)))
        for name in ("get_reply", "get_conversation"):
            monkeypatch.setattr(live.selectors, name, self._failing(getattr(live.selectors, name)))

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                self.failures += 1
                raise OperationalError("the database system is starting up")
            return function(*args, **kwargs)

        return call


async def test_s2_a_database_that_restarts_costs_no_finished_frame(
    conversation: Conversation, person: Person, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)
    reply = await in_database(add_turn, conversation, "q", "", status="streaming", finish_reason="")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello(reply, f"{reply.request_id}.0.0")
        script.events.put_nowait(Token("half", Cursor(reply.request_id, 1, 4)))
        await socket.until("half")
        outage.on = True
        await in_database(finish, reply, "**whole**")
        script.events.put_nowait(done(reply))
        await wait_until(lambda: outage.failures > 3)
        await socket.until('"ping"')
        outage.on = False
        seen = await socket.until(f'hx-target="#{public_id("msg", reply.id)}" hx-swap="outerHTML"')
        assert "<strong>whole</strong>" in seen


async def test_s2_what_a_page_hears_of_while_the_database_is_away_it_is_shown_later(
    conversation: Conversation, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch)
    await in_database(add_turn, conversation, "q", "a1")
    async with connected(conversation.id, person.user) as socket:
        await socket.hello()
        await socket.until("a1")
        outage.on = True
        await in_database(add_turn, conversation, "q", "a2")
        await notices.announce(person.user.id, conversation.id)
        await wait_until(lambda: outage.failures)
        outage.on = False
        await socket.until("a2")
