"""Who is let in, by what the runners say."""

import asyncio
from collections.abc import Iterator

import pytest

from chatsite.redis import async_client
from inference import admission, forecast
from inference.errors import HighDemand
from inference.forecast import Outlook, Place
from inference.protocol import Decided
from inference.redis import keys
from inference.redis.scheduler import Scheduler
from inference.scheduling.prediction import Learned

MODEL = "crowded"
TENANT = "acme"
PLACE = Place("a", 0, 0, 0, 100_000, 8, 1000.0, 1.0)
KNOWN = {lane: Learned({0: (1.0, 1.5)}) for lane in ("enterprise", "paid", "free", "batch")}


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    forecast.forget()
    yield
    forecast.forget()


async def seen(**changes: object) -> None:
    values = {"waiting": {}, "uncached": {}, "learned": KNOWN, "places": [PLACE], "ends": 2.0} | changes
    await forecast.publish(async_client(), keys.scheduler(MODEL), Outlook(**values))  # type: ignore[arg-type]


async def idle_too(**changes: object) -> None:
    """Another model, where nobody waits."""
    values = {"waiting": {}, "uncached": {}, "learned": KNOWN, "places": [PLACE], "ends": 2.0} | changes
    await forecast.publish(async_client(), keys.scheduler("idle"), Outlook(**values))  # type: ignore[arg-type]


async def queue_up(tenant: str, requests: int, lane: str = "free") -> None:
    scheduler = Scheduler(async_client(), MODEL)
    for number in range(requests):
        said = {"input": 500, "uncached": 500, "kv": 600, "deadline": 10**13, "peak_rate": 0.0}
        await scheduler.run(scheduler.enqueue_call(f"{tenant}-{number}", lane, tenant, **said))  # type: ignore[arg-type]


async def test_without_a_word_of_a_runner_everybody_is_let_in() -> None:
    assert await admission.decide(MODEL, "free", TENANT, 1000, 100) == Decided(MODEL, {})


async def test_on_an_idle_pool_the_prediction_is_the_prompt_alone() -> None:
    await seen()
    decision = (await admission.decide(MODEL, "free", TENANT, 500, 100)).record
    assert decision["predicted"] == {"raw": 0.5, "expected": 0.5, "p90": 0.75}
    assert (decision["x"], decision["shed_probability"]) == (0.15, 0.0)
    assert admission.predicted(decision).expected == 0.5  # type: ignore[union-attr]


async def test_in_a_crowd_the_free_are_told_when_to_come_back_and_enterprise_waits() -> None:
    waiting = {"free": 100, "enterprise": 20}
    await seen(waiting=waiting, uncached={"free": 500.0}, places=[Place("a", 0, 0, 8, 100_000, 8, 1000.0, 1.0)])
    await queue_up(TENANT, 100)
    with pytest.raises(HighDemand) as refused:
        await admission.decide(MODEL, "free", TENANT, 500, 100)
    assert "Try again in" in refused.value.message
    assert refused.value.members["decision"]["x"] > 1
    assert refused.value.retry_after is not None and 1 <= refused.value.retry_after <= 144
    decision = (await admission.decide(MODEL, "enterprise", TENANT, 500, 100)).record
    assert decision["x"] > 1


async def test_a_place_that_is_free_is_given_whatever_was_learned() -> None:
    """Else nothing would be learned any more once everybody was turned away."""
    await seen(learned={lane: Learned({0: (4.0, 120.0)}) for lane in KNOWN})
    let_in = 0
    with pytest.raises(HighDemand):  # seven of eight slots are the free lane's
        while True:
            await admission.decide(MODEL, "free", TENANT, 500, 100)
            let_in += 1
    assert let_in == 7


async def test_nobody_is_turned_away_by_a_prediction_that_is_not_trusted() -> None:
    untrusted = {lane: Learned() for lane in KNOWN}
    await seen(waiting={"free": 100}, uncached={"free": 500.0}, learned=untrusted)
    assert "x" not in (await admission.decide(MODEL, "free", TENANT, 500, 100)).record


async def test_a_full_queue_turns_away_whatever_is_predicted() -> None:
    await seen(waiting={"free": 10_000}, learned={})
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", TENANT, 5, 1)


async def test_an_unknown_wait_leaves_no_record() -> None:
    await seen(ends=0.0, waiting={"free": 50}, places=[])
    assert await admission.decide(MODEL, "free", TENANT, 5, 1) == Decided(MODEL, {})


async def test_s31_an_idle_model_does_not_hide_that_another_is_saturated() -> None:
    await seen(uncached={"free": 500.0})
    await queue_up(TENANT, 500)
    await idle_too()
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", TENANT, 500, 100)
    assert (await admission.decide("idle", "free", TENANT, 500, 100)).record["x"] < 1


async def test_who_allows_it_is_answered_by_the_smaller_model_while_the_own_one_is_busy() -> None:
    await seen(waiting={"enterprise": 50}, uncached={"enterprise": 500.0})
    await idle_too()
    assert (await admission.decide(MODEL, "enterprise", TENANT, 100, 100)).model == MODEL  # nobody allowed it
    decided = await admission.decide(MODEL, "enterprise", TENANT, 100, 100, smaller="idle")
    assert decided.model == "idle"
    assert decided.record["instead_of"]["model"] == MODEL and decided.record["instead_of"]["x"] > 1
    assert decided.record["predicted"]["raw"] == 0.1  # of the model that runs it
    assert forecast._read["idle"].arriving.of_lane["enterprise"] == 1


async def test_the_smaller_model_is_not_taken_where_it_would_be_late_too_or_the_own_one_has_a_place() -> None:
    await seen(waiting={"enterprise": 50}, uncached={"enterprise": 500.0})
    await idle_too(waiting={"enterprise": 50}, uncached={"enterprise": 500.0})
    assert (await admission.decide(MODEL, "enterprise", TENANT, 100, 100, smaller="idle")).model == MODEL
    assert (await admission.decide(MODEL, "enterprise", TENANT, 100, 100, smaller="nobody serves it")).model == MODEL
    forecast.forget()
    await idle_too()
    await seen(learned={lane: Learned({0: (4.0, 120.0)}) for lane in KNOWN})  # predicted late, but a place is free
    assert (await admission.decide(MODEL, "enterprise", TENANT, 100, 100, smaller="idle")).model == MODEL


async def test_a_model_without_a_ready_engine_is_stood_in_for() -> None:
    await idle_too()
    decided = await admission.decide(MODEL, "free", TENANT, 100, 100, smaller="idle")
    assert (decided.model, decided.record["instead_of"]) == ("idle", {"model": MODEL})
    assert (await admission.decide(MODEL, "free", TENANT, 100, 100, smaller="down as well")).model == MODEL


async def test_a_flood_of_others_turns_nobody_away_who_is_served_before_most_of_it() -> None:
    full = [Place("a", 0, 0, 8, 100_000, 8, 1000.0, 1.0)]
    await seen(places=full, uncached={"free": 500.0})
    await queue_up("flood", 100)
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", "flood", 500, 100)
    decision = (await admission.decide(MODEL, "free", "newcomer", 500, 100)).record
    assert decision["predicted"]["raw"] == 1.0  # half a second for a slot, and its own prompt
    with pytest.raises(HighDemand):  # those that were let in and are on their way count as well
        for _ in range(100):
            await admission.decide(MODEL, "free", "newcomer", 500, 100)


async def test_who_has_nothing_else_under_way_is_judged_by_what_is_expected() -> None:
    """The margin is the lane's, and as wide as one organization's flood has made it."""
    wide = {lane: Learned({0: (1.0, 50.0)}) for lane in KNOWN}
    await seen(learned=wide, uncached={"free": 500.0}, places=[Place("a", 5, 0, 8, 100_000, 8, 1000.0, 1.0)])
    assert (await admission.decide(MODEL, "free", "newcomer", 500, 100)).record["shed_probability"] == 1.0
    with pytest.raises(HighDemand):  # that one is on its way
        await admission.decide(MODEL, "free", "newcomer", 500, 100)
    await queue_up("flood", 100)
    forecast.forget()
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", "flood", 500, 100)
    with pytest.raises(HighDemand):  # it is not expected in time
        await admission.decide(MODEL, "free", "another", 4000, 100)
    assert await admission.decide(MODEL, "free", "another", 500, 100)


async def test_paying_work_is_not_turned_away_while_lesser_work_has_more_than_its_share() -> None:
    late = {"learned": {lane: Learned({0: (1.0, 30.0)}) for lane in KNOWN}, "waiting": {"paid": 9}}
    await seen(**late, uncached={"paid": 500.0}, running={"free": 8}, places=[PLACE])
    assert (await admission.decide(MODEL, "paid", TENANT, 500, 100)).record["x"] > 2
    forecast.forget()
    await queue_up(TENANT, 1, "paid")
    await seen(**late, uncached={"paid": 500.0}, running={"free": 2, "paid": 6}, places=[PLACE])
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "paid", TENANT, 500, 100)


async def test_the_requests_of_one_call_count_one_by_one() -> None:
    """128 answers are 128 requests for what comes after them, however they were asked for."""
    await seen(learned={lane: Learned({0: (4.0, 120.0)}) for lane in KNOWN})
    assert await admission.decide(MODEL, "free", TENANT, 500, 100, requests=6)
    assert forecast._read[MODEL].arriving.of_tenant["free", TENANT] == 6
    assert await admission.decide(MODEL, "free", "another", 500, 100, requests=4)  # its first has the last place
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", "a third", 500, 100)


async def test_more_requests_than_the_queue_holds_are_refused() -> None:
    await seen(waiting={"free": 9_990}, learned={})
    assert await admission.decide(MODEL, "free", TENANT, 5, 1, requests=10)
    forecast.forget()
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "free", TENANT, 5, 1, requests=11)


async def test_who_has_its_part_of_what_runs_is_not_turned_away_for_anothers_flood() -> None:
    full = [Place("a", 500, 0, 8, 100_000, 8, 1000.0, 1.0)]
    wide = {lane: Learned({0: (0.2, 50.0)}) for lane in KNOWN}
    await seen(learned=wide, uncached={"paid": 100.0}, running={"paid": 8}, places=full, ends=20.0)
    await queue_up("flood", 20, "paid")
    await queue_up(TENANT, 3, "paid")
    assert await admission.decide(MODEL, "paid", TENANT, 100, 100)  # four of eight are its part
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "paid", TENANT, 100, 100)
    with pytest.raises(HighDemand):
        await admission.decide(MODEL, "paid", "flood", 100, 100)


async def test_one_after_another_on_an_idle_engine_nobody_is_turned_away_whatever_was_learned() -> None:
    """As after an overload: between two of them the counts are the same, as each has ended by then."""
    late = {lane: Learned({0: (4.0, 120.0)}) for lane in KNOWN}
    await seen(learned=late, places=[Place("a", 0, 0, 0, 100_000, 2, 1000.0, 1.0)])
    for _ in range(30):
        assert (await asyncio.create_task(admission.decide(MODEL, "free", TENANT, 500, 100))).record["x"] > 1
