"""Who is let in, by what the runners say."""

from collections.abc import Iterator

import pytest

from chatsite.redis import async_client
from inference import admission, forecast
from inference.errors import HighDemand
from inference.forecast import Outlook, Place
from inference.redis import keys
from inference.scheduling.prediction import Learned

MODEL = "crowded"
PLACE = Place("a", 0, 0, 0, 100_000, 8, 1000.0, 1.0)
KNOWN = {lane: Learned(1.0, 1.5, True) for lane in ("enterprise", "paid", "free", "batch")}


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    forecast.forget()
    yield
    forecast.forget()


async def seen(**changes: object) -> None:
    values = {"waiting": {}, "uncached": {}, "learned": KNOWN, "places": [PLACE], "ends": 2.0} | changes
    await forecast.publish(async_client(), keys.scheduler(MODEL), Outlook(**values))  # type: ignore[arg-type]


async def test_without_a_word_of_a_runner_everybody_is_let_in() -> None:
    assert await admission.decide(MODEL, "free", 1000, 100) == {}


async def test_on_an_idle_pool_the_prediction_is_the_prompt_alone() -> None:
    await seen()
    decision = await admission.decide(MODEL, "free", 500, 100)
    assert decision["predicted"] == {"raw": 0.5, "expected": 0.5, "p90": 0.75}
    assert (decision["x"], decision["shed_probability"]) == (0.15, 0.0)
    assert admission.predicted(decision).expected == 0.5  # type: ignore[union-attr]


async def test_in_a_crowd_the_free_are_told_when_to_come_back_and_enterprise_waits() -> None:
    waiting = {"free": 100, "enterprise": 20}
    await seen(waiting=waiting, uncached={"free": 500.0}, places=[Place("a", 0, 0, 8, 100_000, 8, 1000.0, 1.0)])
    with pytest.raises(HighDemand) as refused:
        await admission.decide(MODEL, "free", 500, 100)
    assert "Try again in" in refused.value.message
    assert refused.value.retry_after is not None and 1 <= refused.value.retry_after <= 144
    decision = await admission.decide(MODEL, "enterprise", 500, 100)
    assert decision["x"] > 1


async def test_a_place_that_is_free_is_given_whatever_was_learned() -> None:
    """Else nothing would be learned any more once everybody was turned away."""
    await seen(learned={lane: Learned(4.0, 30.0, True) for lane in KNOWN})
    let_in = 0
    with pytest.raises(HighDemand):  # seven of eight slots are the free lane's
        while True:
            await admission.decide(MODEL, "free", 500, 100)
            let_in += 1
    assert let_in == 7


async def test_nobody_is_turned_away_by_a_prediction_that_is_not_trusted() -> None:
    untrusted = {lane: Learned() for lane in KNOWN}
    await seen(waiting={"free": 100}, uncached={"free": 500.0}, learned=untrusted)
    assert "x" not in await admission.decide(MODEL, "free", 500, 100)


async def test_a_full_queue_turns_away_whatever_is_predicted() -> None:
    await seen(waiting={"free": 10_000}, learned={})
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", 5, 1)


async def test_an_unknown_wait_leaves_no_record() -> None:
    await seen(ends=0.0, waiting={"free": 50}, places=[])
    assert await admission.decide(MODEL, "free", 5, 1) == {}


async def test_s31_an_idle_model_does_not_hide_that_another_is_saturated() -> None:
    await seen(waiting={"free": 500}, uncached={"free": 500.0})
    idle = Outlook(waiting={}, uncached={}, learned=KNOWN, places=[PLACE], ends=2.0)
    await forecast.publish(async_client(), keys.scheduler("idle"), idle)
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", 500, 100)
    assert (await admission.decide("idle", "free", 500, 100))["x"] < 1
