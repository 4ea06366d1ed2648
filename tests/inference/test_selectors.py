"""What a waiting reader is shown, and what it costs to tell it each second."""

import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chatsite.database import run_db
from chatsite.redis import async_client, sync_client
from conversations.models import Message
from inference import forecast, selectors
from inference.forecast import Outlook, Place
from inference.models import Model, Replica, Request
from inference.protocol import QueuePlace
from inference.redis import keys
from inference.redis.scheduler import Scheduler
from inference.scheduling.prediction import Learned
from quotas import selectors as quota_selectors
from tests.conftest import Person
from tests.inference.runner.conftest import House, big, house, model
from tests.tuning import atune

__all__ = ["big", "house", "model"]
LANES = ("enterprise", "paid", "free", "batch")
PLACE = Place("a", 0, 0, 0, 100_000, 0, 1000.0, 1.0)  # without a free slot
KNOWN = {lane: Learned({0: (1.0, 1.5)}) for lane in LANES}


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    forecast.forget()
    yield
    forecast.forget()


def another_process() -> None:
    """Knows what is in the stores alone."""
    selectors._shown.clear()


async def crowd(model: str, wait: float) -> None:
    """`wait`: seconds that somebody waits who is next."""
    outlook = Outlook(waiting={}, uncached={}, learned=KNOWN, places=[PLACE], ends=1 / wait)
    forecast.forget()
    await forecast.publish(async_client(), keys.scheduler(model), outlook)


async def ready(model: Model) -> None:
    replica = await run_db(Replica.objects.create, model=model, url=f"http://{model.name}")
    told = {"state": "ready", "seen": round(time.time() * 1000)}
    sync_client().hset(keys.replica(keys.scheduler(model.name), replica.id), mapping=told)


async def waits(house: House, model: Model | None = None) -> Message:
    house.model = model or house.model
    message = await house.ask(20)
    assert message.request_id is not None
    return message


async def place(message: Message) -> QueuePlace:
    assert message.request_id is not None
    found = await selectors.queue_place(message.request_id)
    assert found is not None
    return found


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What PostgreSQL is asked in whatever thread."""
    seen: list[str] = []

    def work(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with CaptureQueriesContext(connection) as caught:
            result = function(*args, **kwargs)
        seen.extend(query["sql"] for query in caught.captured_queries)
        return result

    async def counted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await run_db(partial(work, function), *args, **kwargs)

    for module in (selectors, quota_selectors):
        monkeypatch.setattr(module, "run_db", counted)
    return seen


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Redis is asked about replicas."""
    seen: list[str] = []
    states = selectors.published_states

    async def counted(client: Any, name: str, rows: Any) -> Any:
        seen.append(name)
        return await states(client, name, rows)

    monkeypatch.setattr(selectors, "published_states", counted)
    return seen


async def test_who_waits_is_told_each_second_without_asking_the_database(
    house: House, big: Model, queries: list[str], commands: list[str]
) -> None:
    await crowd(house.model.name, wait=20)
    first = await waits(house)
    await place(first)
    assert len(queries) == 3  # the row, the models and their replicas
    queries.clear()
    commands.clear()
    for _ in range(20):
        await place(first)
    assert (queries, commands) == ([], [])
    await place(await waits(house))  # a second one that waits has a row of its own
    assert len(queries) == 1


async def test_readiness_that_could_not_be_read_is_read_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    message = await waits(house)
    await crowd(house.model.name, wait=20)
    right = selectors._models_and_replicas

    def broken() -> Any:
        raise OSError

    monkeypatch.setattr(selectors, "_models_and_replicas", broken)
    with pytest.raises(OSError):
        await place(message)
    monkeypatch.setattr(selectors, "_models_and_replicas", right)
    assert (await place(message)).position == 1


async def test_no_longer_wait_is_shown_than_the_request_may_wait(house: House) -> None:
    await crowd(house.model.name, wait=227)
    message = await waits(house)
    await run_db(Request.objects.filter(id=message.request_id).update, deadline=_in(seconds=60))
    shown = await place(message)
    assert shown.eta is not None and 50 < shown.eta <= 60


async def test_a_request_that_goes_on_beyond_its_deadline_is_told_what_is_predicted(house: House) -> None:
    await crowd(house.model.name, wait=30)
    message = await waits(house)
    await run_db(Request.objects.filter(id=message.request_id).update, deadline=_in(seconds=-1))
    assert (await place(message)).eta == pytest.approx(30, abs=0.5)


def _in(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


@pytest.mark.parametrize("arrive", [lambda: None, another_process])
async def test_a_second_page_never_shows_more_than_the_first(house: House, arrive: Callable[[], None]) -> None:
    await ready(house.model)
    await crowd(house.model.name, wait=10)
    message = await waits(house)
    await place(message)
    assert (await place(message)).eta == pytest.approx(10, abs=0.5)
    await crowd(house.model.name, wait=40)
    arrive()
    assert (await place(message)).eta == pytest.approx(10, abs=0.5)


async def test_the_place_rises_after_a_preemption_only(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    message = await waits(house)
    told = iter([(2, 0), (2, 0), (7, 0), (7, 1), (8, 1)])

    class Told:
        def __init__(self, ahead: int, preemptions: int) -> None:
            self.ahead, self.preemptions = ahead, preemptions

    async def moved(self: Scheduler, id: str) -> Told:
        return Told(*next(told))

    monkeypatch.setattr(Scheduler, "place", moved)
    shown = []
    for _ in range(5):
        shown.append((await place(message)).position)
        if len(shown) != 1:
            another_process()
    assert shown == [3, 3, 3, 8, 9]  # what a process has not told yet, the next one cannot know


async def offered(message: Message) -> str:
    await atune(admission={"offer_smaller_seconds": 0.0})
    return (await place(message)).smaller


async def test_a_smaller_model_that_is_as_crowded_is_not_offered(house: House, big: Model) -> None:
    small = house.model
    await ready(small)
    message = await waits(house, big)
    await crowd(big.name, wait=20)
    await crowd(small.name, wait=25)
    assert await offered(message) == ""
    await crowd(small.name, wait=5)
    assert await offered(message) == "SmolLM2"


async def test_those_who_wait_for_the_smaller_model_count(house: House, big: Model, person: Person) -> None:
    small = house.model
    await ready(small)
    for _ in range(3):
        await waits(house, small)
    message = await waits(house, big)
    await crowd(big.name, wait=20)
    await crowd(small.name, wait=8)  # each
    assert await offered(message) == ""


async def test_of_a_model_that_nobody_predicts_nothing_is_promised(house: House, big: Model) -> None:
    await ready(house.model)
    message = await waits(house, big)
    await crowd(big.name, wait=20)
    assert await offered(message) == ""


async def test_who_is_turned_away_is_named_a_model_that_answers_sooner(house: House, big: Model) -> None:
    small, organization = house.model, house.person.organization.id
    ask: Callable[[float], Awaitable[Model | None]] = partial(selectors.sooner_model, big.name, organization, 100)
    await ready(small)
    assert await ask(15) is None  # nothing is known of it
    await crowd(small.name, wait=20)
    assert await ask(15) is None
    await crowd(small.name, wait=5)
    assert await ask(15) == small
    assert await selectors.sooner_model(small.name, organization, 100, 15) is None  # nothing stands in for it


async def test_what_is_gone_does_not_wait(house: House) -> None:
    assert await selectors.queue_place(UUID(int=0)) is None


def test_a_reader_of_a_wait_that_is_late_is_told_so() -> None:
    """Whatever this reader was shown last, and when."""
    shown = QueuePlace(1, 5.0).after(None, 0)
    late = QueuePlace(1, None, late=True).after(shown, 1)
    assert (late.late, late.eta) == (True, None)
