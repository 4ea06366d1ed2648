"""Calls of the flex tier that are refused: at once, when they are to start, or when they have waited in vain."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from chatsite.accounts.models import ApiKey, User
from chatsite.accounts.pausing import pause
from chatsite.accounts.protocol import COMMAND
from chatsite.database import run_db
from inference import sweep
from inference.completions import ending
from inference.completions.reader import failure
from inference.finishing import result_of
from inference.protocol import Refusal, Result
from inference.replicas import ReplicaState
from quotas.errors import BudgetExhausted
from quotas.services import stop
from tests.conversations.callers import Caller
from tests.inference.completions.flex_calls import change_plan, error_of, limit_tokens, waits
from tests.inference.completions.route_calls import PATH, entries, over, rows
from tests.inference.runner.conftest import House
from tests.tuning import atune
from tests.waiting import wait_until

Chat = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.usefixtures("soon")


async def test_what_never_fits_is_refused_at_once(house: House, caller: Caller, flex: Chat) -> None:
    await change_plan(tokens_per_minute=50, models=["another"])
    assert (await caller.call("POST", PATH, flex())).status == 403
    await change_plan(models=[])
    answer = await caller.call("POST", PATH, flex("river " * 100))
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    assert (await caller.call("POST", PATH, flex("river " * 5000))).status == 400
    await run_db(stop, house.person.organization.id)
    answer = await caller.call("POST", PATH, flex())
    assert (answer.status, error_of(answer)["code"]) == (503, "stopped")
    assert await rows() == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_budget_that_is_spent_meanwhile_ends_the_wait(
    house: House, caller: Caller, chat: Chat, flex: Chat, stream: bool
) -> None:
    await house.engine()
    first = await house.runner()
    assert (await caller.call("POST", PATH, chat(max_tokens=60, n=1))).status == 200
    await over(house)
    await house.end(first)
    async with caller.open("POST", PATH, flex(max_tokens=60, stream=stream)) as call:
        await waits(2)
        if stream:
            await wait_until(lambda: call.received.status == 200)  # the stream has begun
        [spent] = await entries()
        await limit_tokens(house, spent.input + spent.output + 10)
        await house.runner()
        answer = await call.answer()
    if stream:
        last = json.loads(answer.body.decode().rstrip().rpartition("data: ")[2])["error"]
        assert (last["code"], last["type"]) == ("insufficient_quota", "insufficient_quota")
        assert "There will be more on" in last["message"]
    else:
        error = error_of(answer)
        assert (answer.status, error["code"], error["type"]) == (429, "insufficient_quota", "insufficient_quota")
        assert "There will be more on" in error["message"]
        assert answer.headers["x-should-retry"] == "false"
        assert int(answer.headers["retry-after"]) > 1
        assert int(answer.headers["x-ratelimit-limit-tokens"]) > 0
    await over(house)
    [_, row], [_, entry] = await rows(), await entries()
    assert (row.status, row.error_code, row.attempt) == ("failed", "budget_exhausted", 0)
    assert (entry.outcome, entry.lane, entry.input, entry.output, entry.cost) == ("failed", "batch", 0, 0, 0)
    assert len(house.engines[0].calls) == 1
    answer = await caller.call("POST", PATH, flex(max_tokens=60))
    assert (answer.status, error_of(answer)["code"]) == (429, "insufficient_quota")
    assert len(await rows()) == 2


async def test_who_finds_no_room_until_its_deadline_is_told_the_limit(
    house: House, caller: Caller, flex: Chat, settings: Any
) -> None:
    settings.FLEX_WAIT_SECONDS = 2.0
    await atune(lease={"requeued_wait_seconds": 5.0})
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    await change_plan(concurrent=1)
    async with caller.open("POST", PATH, flex(max_tokens=3000)):
        await wait_until(lambda: engine.running == 1)
        answer = await caller.call("POST", PATH, flex(max_tokens=5))
        assert (answer.status, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert "The demo plan allows 1 replies at once" in error_of(answer)["message"]
        assert answer.headers["retry-after"] == "1"
        assert "x-should-retry" not in answer.headers
        assert len(engine.calls) == 1
    await wait_until(lambda: not ending.going)
    await over(house)


async def test_a_wait_behind_others_ends_as_any_wait(house: House, caller: Caller, flex: Chat, settings: Any) -> None:
    settings.FLEX_WAIT_SECONDS = 0.5
    call = asyncio.create_task(caller.call("POST", PATH, flex(max_tokens=5)))
    await waits()

    async def over_now() -> bool:
        await sweep.sweep(loading=set())
        return call.done()

    await wait_until(over_now)
    answer = await call
    assert (answer.status, error_of(answer)["code"]) == (503, "engine_unavailable")


async def test_a_wait_for_a_place_ends_as_one_for_room_does(
    house: House, caller: Caller, flex: Chat, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that its limits held back until then is in the queue at that moment, or in none: it must not matter."""
    settings.FLEX_WAIT_SECONDS = 0.5
    monkeypatch.setattr(sweep, "_states", AsyncMock(return_value=[ReplicaState.READY]))
    call = asyncio.create_task(caller.call("POST", PATH, flex(max_tokens=5)))
    await waits()

    async def over_now() -> bool:
        await sweep.sweep(loading=set())
        return call.done()

    await wait_until(over_now)
    answer = await call
    assert (answer.status, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
    assert error_of(answer)["message"].startswith("The flex tier had no place for this call in time.")
    assert answer.headers["retry-after"] == "5"
    assert "x-should-retry" not in answer.headers
    [row] = await rows()
    assert (row.status, row.error_code) == ("expired", "rate_limited")
    of_the_row = failure(result_of(row))  # where the log is lost
    assert of_the_row is not None
    assert (of_the_row.status, of_the_row.message) == (429, error_of(answer)["message"])
    await over(house)


async def test_its_requests_of_the_minute_are_taken_when_it_comes(house: House, caller: Caller, flex: Chat) -> None:
    await change_plan(requests_per_minute=1)
    async with caller.open("POST", PATH, flex(n=2)):
        await waits(2)
        answer = await caller.call("POST", PATH, flex())
    assert (answer.status, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
    assert "requests a minute" in error_of(answer)["message"]
    assert float(answer.headers["retry-after-ms"]) > 1000
    await wait_until(lambda: not ending.going)
    await over(house)


async def test_only_so_many_of_an_organization_wait(house: House, caller: Caller, flex: Chat, settings: Any) -> None:
    settings.FLEX_REQUESTS = 3
    async with caller.open("POST", PATH, flex(n=2)), caller.open("POST", PATH, flex()):
        await waits(3)
        answer = await caller.call("POST", PATH, flex())
        assert (answer.status, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert error_of(answer)["message"] == (
            "An organization may have 3 requests of the flex tier under way, and this one has 3."
        )
        assert "retry-after" in answer.headers
    await wait_until(lambda: not ending.going)
    answer = await caller.call("POST", PATH, flex(n=4))
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    await over(house)


@pytest.mark.parametrize("what", ["paused", "revoked", "disabled", "stopped"])
async def test_who_may_do_nothing_any_more_starts_nothing(
    house: House, caller: Caller, flex: Chat, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "stop_barred", AsyncMock())  # which would come first
    engine = await house.engine()
    key = house.person.key
    async with caller.open("POST", PATH, flex(max_tokens=5)) as call:
        await waits()
        if what == "paused":
            await run_db(pause, key.chain_id, COMMAND, "unusual")
        elif what == "revoked":
            await run_db(lambda: ApiKey.objects.filter(pk=key.pk).update(revoked_at=key.created_at))
        elif what == "disabled":
            await run_db(lambda: User.objects.filter(pk=house.person.user.pk).update(is_active=False))
        else:
            await run_db(stop, house.person.organization.id, "Back at one.")
        await house.runner()
        answer = await call.answer()
    expected = {
        "paused": (403, "key_paused"),
        "revoked": (401, "invalid_api_key"),
        "disabled": (401, "invalid_api_key"),
        "stopped": (503, "stopped"),
    }
    assert (answer.status, error_of(answer)["code"]) == expected[what]
    assert ("retry-after" in answer.headers) == (what == "stopped")
    await over(house)
    assert not engine.calls
    assert [each.cost for each in await entries()] == [0]


def test_what_a_runner_says_is_told_as_it_would_have_been_at_once() -> None:
    def told_of(code: str, **more: Any) -> Any:
        return failure(Result("failed", "", code, "Why.", 0, 0, 0, Refusal(**more)))

    spent = told_of("budget_exhausted", retry_after=86_400.0, should_retry=False)
    assert isinstance(spent, BudgetExhausted)
    assert (spent.message, spent.retry_after, spent.should_retry) == ("Why.", 86_400.0, False)
    assert told_of("budget_exhausted", retry_after=1.0).should_retry is None
    limited = told_of("rate_limited", retry_after=3.5, of="tokens")
    assert (limited.status, limited.retry_after, limited.should_retry, limited.of) == (429, 3.5, None, "tokens")
    assert told_of("rate_limited", should_retry=False).should_retry is False
    statuses = {code: told_of(code).status for code in ("no_plan", "key_paused", "stopped", "unavailable")}
    assert statuses == {"no_plan": 403, "key_paused": 403, "stopped": 503, "unavailable": 503}
    assert told_of("prompt_lost").code == "engine_unavailable"
    of_the_row = failure(Result("failed", "", "rate_limited", "Why.", 0, 0, 0))
    assert of_the_row is not None and (of_the_row.status, of_the_row.message) == (429, "Why.")
