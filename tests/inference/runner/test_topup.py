"""Reservations of running replies grow with them, and a reply for which there is no more ends with what it has."""

import asyncio

import pytest

from chatsite.database import run_db
from conversations.drafts import continuable
from inference.protocol import EndEvent
from quotas import selectors
from quotas.models import Plan
from quotas.protocol import Want
from tests.inference.runner.conftest import PROMPT, House, Reader, house, model
from tests.tuning import atune

__all__ = ["house", "model"]


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each reply the prompt and 10 tokens are reserved, whatever it may become."""
    monkeypatch.setattr("tests.inference.runner.conftest.Want", lambda tokens: Want(len(PROMPT) + 10, tokens, 0))


async def minute(house: House, tokens: int) -> None:
    await run_db(Plan.objects.filter(name="demo").update, tokens_per_minute=tokens)
    selectors.known_plans.clear()


async def test_a_long_reply_is_topped_up_and_ends_by_itself(house: House, reserved: None) -> None:
    await house.engine(tokens_per_second=200)
    await house.runner()
    await minute(house, 100_000)
    message = await house.ask(400)
    ended = await house.ended(message)
    assert (ended.status, ended.finish_reason) == ("complete", "length")
    plan = await selectors.aplan_of(house.person.organization.id)
    used = (await selectors.remaining(house.person.principal, plan)).standings[0].tokens
    assert 400 - 100_000 / 60 * 5 <= used <= 405


async def test_fast_replies_do_not_outgrow_their_reservations_between_two_heartbeats(
    house: House, reserved: None
) -> None:
    """Side by side they take no more than the minute and one burst, and what comes while they are told to end."""
    await atune(lease={"lease_seconds": 9.0, "heartbeat_seconds": 2.0, "abort_seconds": 6.0})
    await house.engine(tokens_per_second=400)
    await house.runner()
    await minute(house, 600)
    messages = await asyncio.gather(*(house.ask(2000) for _ in range(6)))
    for message in messages:
        assert (await house.ended(message)).finish_reason == "quota"
    entries = [entry for message in messages for entry in await house.ledger(message)]
    total = sum(entry.input + entry.output for entry in entries)
    assert 600 <= total <= 2 * 600 + 6 * 100  # a quarter of a second for each


async def test_a_reply_for_which_there_is_no_more_keeps_its_text_and_is_billed_for_it(
    house: House, reserved: None
) -> None:
    await house.engine(tokens_per_second=200)
    await house.runner()
    await minute(house, 60)  # and one burst: 120
    message = await house.ask(2000)
    reader = Reader(message.request_id)
    ended = await house.ended(message)
    text = await reader.done()
    assert (ended.status, ended.finish_reason) == ("complete", "quota")
    assert ended.content == text != ""
    [entry] = await house.ledger(message)
    _, whole = house.expected(2000)
    assert whole.startswith(text)
    assert (entry.input, entry.outcome) == (len(PROMPT), "succeeded")
    assert len(PROMPT) + 10 <= entry.input + entry.output < 1000
    assert isinstance(reader.events[-1], EndEvent)
    assert reader.events[-1].result is None or reader.events[-1].result.finish_reason == "quota"
    await house.nothing_is_held()
    assert continuable(ended)
    await minute(house, 1_000_000)
    again = await house.ended(await house.ask(100, on=ended))
    assert again.content == house.expected(entry.output + 100)[1]
