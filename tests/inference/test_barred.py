"""Replies of people who are disabled or removed, and of keys that are revoked, end within seconds."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatsite.accounts import keys, members, pausing
from chatsite.accounts import services as account_services
from chatsite.accounts.models import ApiKey, Organization, User
from chatsite.accounts.protocol import SITE
from chatsite.accounts.roles import Role
from chatsite.database import run_db
from inference import barred
from inference.barred import stop_barred
from inference.models import Request
from quotas.services import subscribe
from tests.chatsite.organizations import by, make_organization
from tests.conftest import Person
from tests.conversations.callers import Caller
from tests.inference.completions.conftest import caller, chat
from tests.inference.completions.route_calls import PATH, Chat, entries, over, rows
from tests.inference.runner.conftest import House, house, model
from tests.waiting import wait_until

__all__ = ["caller", "chat", "house", "model"]


def disable(house: House) -> None:
    account_services.deactivate_user(house.person.user)


def revoke(house: House) -> None:
    keys.revoke_api_key(house.person.key)


def expire(house: House) -> None:
    ApiKey.objects.filter(pk=house.person.key.pk).update(expires_at=timezone.now())
    keys.known_keys.clear()


def in_organization(person: Person, organization: Organization) -> Person:
    """As on the page: with no key that could be revoked."""
    return replace(person, organization=organization, key=ApiKey(user=person.user, organization=organization))


@pytest.fixture(autouse=True)
def _first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barred, "_looked_at", None)


@pytest.mark.parametrize("bar", [disable, revoke])
async def test_s23_a_stream_ends_and_what_was_sent_is_charged(
    house: House, caller: Caller, chat: Chat, bar: Callable[[House], None]
) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=3000, stream=True)) as call:
        await wait_until(lambda: len(call.received.chunks) > 5, 5)
        await run_db(bar, house)
        answer = await call.answer(5)
    assert b'"code":"invalid_api_key"' in answer.body.replace(b": ", b":")
    assert engine.running == 0
    await over(house)
    [row] = await rows()
    [entry] = await entries()
    assert (row.status, entry.outcome, entry.input) == ("cancelled", "cancelled", row.prompt_tokens)
    assert entry.output == row.output_tokens > 4
    assert (await caller.call("POST", PATH, chat())).status == 401


async def test_an_answer_in_one_piece_ends_and_costs_nothing(house: House, caller: Caller, chat: Chat) -> None:
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    async with caller.open("POST", PATH, chat(max_tokens=3000)) as call:
        await wait_until(lambda: engine.running == 1 and len(engine.calls[-1].token_ids) > 5, 5)
        await run_db(revoke, house)
        answer = await call.answer(5)
    assert (answer.status, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "retry-after" not in answer.headers  # nor would it help

    async def costs_nothing() -> bool:
        return sum(entry.output for entry in await entries()) == 0

    await wait_until(costs_nothing, 5)


async def test_a_reply_of_a_conversation_ends_and_keeps_its_text(house: House) -> None:
    await house.engine(tokens_per_second=50)
    await house.runner()
    message = await house.ask(2000)
    await house.emitted(message, 5)
    await run_db(disable, house)
    done = await house.ended(message, 5)
    assert (done.status, done.finish_reason) == ("stopped", "cancelled")
    assert done.content
    await house.nothing_is_held()


async def test_what_waits_in_the_queue_ends_too(house: House) -> None:
    message = await house.ask(20)
    await run_db(revoke, house)
    await stop_barred()
    assert (await house.ended(message, 2)).status == "stopped"


async def test_a_member_who_is_removed_is_heard_no_more_in_that_organization(house: House, stranger: Person) -> None:
    """What runs in chats too, which nobody can open any more; what they have elsewhere goes on."""
    acme = await run_db(lambda: make_organization(stranger, member=house.person))
    await run_db(subscribe, acme.pk, "demo")
    await house.engine(tokens_per_second=100)
    await house.runner()
    own, home = house.person, await house.ask(150)
    house.person = in_organization(own, acme)
    there = await house.ask(2000)
    await house.emitted(there, 5)
    await house.emitted(home, 5)
    await run_db(members.remove, acme.pk, own.user.pk, by(stranger.user))
    done = await house.ended(there, 5)
    assert (done.status, done.finish_reason) == ("stopped", "cancelled") and done.content
    assert (await house.ended(home)).status == "complete"


@pytest.mark.parametrize("again", ["activated", "member"])
async def test_who_is_let_in_again_is_not_stopped(house: House, stranger: Person, again: str) -> None:
    acme = await run_db(lambda: make_organization(stranger, member=house.person))

    def bar_and_let_in() -> None:
        user = house.person.user
        if again == "activated":
            account_services.deactivate_user(user)
            account_services.activate_user(user)
        else:
            members.remove(acme.pk, user.pk, by(stranger.user))
            members.add(acme.pk, user, Role.MEMBER, SITE)

    await run_db(bar_and_let_in)
    house.person = in_organization(house.person, acme) if again == "member" else house.person
    await run_db(subscribe, acme.pk, "demo")
    message = await house.ask(20)
    await stop_barred()
    assert (await house.request(message)).cancel_requested_at is None


@pytest.mark.parametrize("expired", [False, True], ids=["paused", "expired"])
async def test_others_and_what_a_key_has_begun_that_is_not_revoked_go_on(
    house: House, stranger: Person, expired: bool
) -> None:
    await house.engine(tokens_per_second=100)
    await house.runner()
    await run_db(account_services.deactivate_user, stranger.user)
    message = await house.ask(150)
    await house.emitted(message, 5)
    if expired:
        await run_db(expire, house)
    else:
        assert await run_db(pausing.pause, house.person.key.chain_id, SITE, "for a test")
    await stop_barred()
    done = await house.ended(message)
    assert (done.status, len(done.token_ids) // 4) == ("complete", 150)
    assert await run_db(Request.objects.filter(cancel_requested_at__isnull=False).count) == 0


async def test_no_request_is_looked_at_while_nobody_is_barred(house: House, stranger: Person) -> None:
    await house.ask(20)
    await run_db(account_services.deactivate_user, stranger.user)

    def tables(since: Any) -> set[str]:
        with CaptureQueriesContext(connection) as captured:
            barred._barred(since)
        return {each["sql"].split('FROM "')[1].split('"')[0] for each in captured}

    now = timezone.now()
    assert "inference_request" in await run_db(tables, now - timedelta(minutes=1))
    assert "inference_request" not in await run_db(tables, now + timedelta(seconds=1))


async def test_what_was_missed_while_nobody_swept_is_made_up_for(house: House) -> None:
    """The next look goes back to the last one that ended, and a minute more."""
    await stop_barred()
    message = await house.ask(20)
    await run_db(disable, house)
    await run_db(
        User.objects.filter(pk=house.person.user.pk).update, disabled_at=timezone.now() - timedelta(seconds=50)
    )
    await stop_barred()
    assert (await house.ended(message, 2)).status == "stopped"
