"""Replies of people who are disabled, and of keys that are revoked, end within seconds."""

from collections.abc import Callable
from typing import Any

import pytest

from chatsite.accounts import keys, pausing
from chatsite.accounts import services as account_services
from chatsite.accounts.protocol import SITE
from chatsite.database import run_db
from chatsite.ids import new_id
from inference.barred import stop_barred
from inference.models import Request
from quotas.models import LedgerEntry
from tests.conversations.callers import Caller
from tests.inference.completions.conftest import caller, chat
from tests.inference.completions.test_routes import PATH, over, rows
from tests.inference.runner.conftest import House, house, model
from tests.waiting import wait_until

__all__ = ["caller", "chat", "house", "model"]
Chat = Callable[..., dict[str, Any]]


def disable(house: House) -> None:
    account_services.deactivate_user(house.person.user)


def revoke(house: House) -> None:
    keys.revoke_api_key(house.person.key)


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
    assert b'"code":"call_cancelled"' in answer.body.replace(b": ", b":")
    assert engine.running == 0
    await over(house)
    [row] = await rows()
    [entry] = await run_db(lambda: list(LedgerEntry.objects.all()))
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
    assert (answer.status, answer.json()["error"]["code"]) == (503, "call_cancelled")

    async def costs_nothing() -> bool:
        return sum(entry.output for entry in await run_db(lambda: list(LedgerEntry.objects.all()))) == 0

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


async def test_others_and_what_an_expired_or_paused_key_has_begun_go_on(house: House, stranger: Any) -> None:
    await house.engine(tokens_per_second=100)
    await house.runner()
    await run_db(account_services.deactivate_user, stranger.user)
    message = await house.ask(150)
    await house.emitted(message, 5)
    await run_db(
        lambda: keys.rotate_api_key(house.person.user, house.person.key.id, new_id(), keys.timedelta(0), None, SITE)
    )
    assert await run_db(pausing.pause, house.person.key.chain_id, SITE, "for a test")
    await stop_barred()
    done = await house.ended(message)
    assert (done.status, len(done.token_ids) // 4) == ("complete", 150)
    assert await run_db(Request.objects.filter(cancel_requested_at__isnull=False).count) == 0
