"""A reservation lives as long as its request is open, however long it waits."""

import json
import time

import pytest

from chatsite.database import run_db
from chatsite.ids import new_id
from chatsite.redis import async_client
from conversations.services import create_conversation, send
from inference import renewal, reservations, services, sweep
from inference.completions.acceptance import accept
from inference.completions.calls import read_chat
from inference.models import RequestStatus
from quotas.errors import TooManyReplies
from quotas.protocol import PlanLimits, Want
from quotas.scripts import quota_prefix
from quotas.services import reserve
from tests.inference.runner.conftest import House, house, model
from tests.tuning import patience, tune
from tests.waiting import wait_until

__all__ = ["house", "model"]
ONE_AT_ONCE = PlanLimits("test", "paid", 100_000, 1)


@pytest.fixture
def short_waits(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(lanes=patience(0.6))
    monkeypatch.setattr(renewal, "EVERY_SECONDS", 0.1)


async def refused(house: House) -> bool:
    try:
        await reserve(house.person.principal, ONE_AT_ONCE, {new_id(): Want(5)}, 0.1)
    except TooManyReplies:
        return True
    return False


@pytest.mark.usefixtures("short_waits")
async def test_while_a_model_loads_those_who_wait_keep_their_places(house: House) -> None:
    message = await house.ask(20)
    until = time.monotonic() + 3 * 0.6

    async def loading() -> bool:
        await sweep.sweep(loading={house.model.name})
        assert await refused(house)
        return time.monotonic() > until

    await wait_until(loading)
    assert (await house.request(message)).status == RequestStatus.QUEUED
    await services.cancel(message.request_id)
    await house.nothing_is_held()
    assert not await refused(house)


@pytest.mark.usefixtures("short_waits")
async def test_more_than_one_batch_is_renewed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "BATCH", 2)
    messages = [await house.ask(20) for _ in range(5)]
    await renewal.renew_waiting()
    await wait_until(lambda: _over(messages[-1]), 3)
    limits = PlanLimits("test", "paid", 100_000, 5)
    with pytest.raises(TooManyReplies):
        await reserve(house.person.principal, limits, {new_id(): Want(5)}, 1)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("lane", ["enterprise", "paid", "free"])
def test_a_reservation_never_lives_shorter_than_a_renewal_gives_it(lane: str) -> None:
    assert reservations.life(lane) == 30.0
    tune(lanes=patience(90.0))
    assert reservations.life(lane) == 90.0


@pytest.mark.usefixtures("short_waits")
async def test_a_reply_and_a_call_reserve_for_as_long_as_a_renewal_gives(house: House) -> None:
    principal = house.person.session_principal
    conversation = await run_db(create_conversation, principal, model=house.model.name)
    reply = await send(principal, conversation.id, "Hello")
    body = {"model": house.model.name, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    call = await accept(principal, read_chat(json.dumps(body).encode()))
    for request_id in (reply.request_id, *call.requests):
        until = await async_client().zscore(f"{quota_prefix(principal.organization_id)}:live", str(request_id))
        assert 25 < until / 1000 - time.time() <= 30.5


def _over(message: object) -> bool:
    """Whether its reservation would have expired by now."""
    return time.time() > message.created_at.timestamp() + 0.8  # type: ignore[attr-defined]
