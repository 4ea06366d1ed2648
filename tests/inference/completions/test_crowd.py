"""How much of the flex tier is let in: by organization, and by model in fair parts."""

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chatsite.errors import RateLimited
from inference import tokenization
from inference.completions import crowd, ending
from inference.errors import HighDemand
from inference.models import Model
from quotas import services as quota_services
from tests.conftest import Person
from tests.conversations.callers import Caller
from tests.inference.completions.flex_calls import error_of, waits
from tests.inference.completions.route_calls import PATH, Chat, over
from tests.inference.runner.conftest import House
from tests.inference.test_held_back import waiting
from tests.tuning import atune, tune
from tests.waiting import wait_until

NAME = "smollm2-135m"


def anew() -> None:
    """As a second later."""
    crowd.known_refused.clear()
    crowd.known_crowds.clear()


def check(person: Person, more: int = 1) -> None:
    crowd.check(person.organization.id, NAME, more)


def takes(person: Person, more: int) -> bool:
    anew()
    try:
        check(person, more)
    except HighDemand:
        return False
    return True


@pytest.fixture
def people(make_person: Callable[..., Person]) -> list[Person]:
    return [make_person(f"{name}@example.com") for name in ("ada", "bob", "eve")]


def has(person: Person, model: Model, count: int) -> None:
    for _ in range(count):
        waiting(person, model)


def test_a_queue_that_others_have_filled_has_room_for_who_has_none(model: Model, people: list[Person]) -> None:
    tune(admission={"queue_cap": 6})
    first, second, newcomer = people
    has(first, model, 3)
    has(second, model, 3)
    assert not takes(first, 1) and not takes(second, 1)
    assert not takes(newcomer, 3)  # six, by three organizations
    assert takes(newcomer, 2)


def test_who_has_less_than_its_part_of_a_full_queue_gets_that(model: Model, people: list[Person]) -> None:
    tune(admission={"queue_cap": 6})
    much, little, _ = people
    has(much, model, 5)
    has(little, model, 1)
    assert not takes(much, 1)
    assert takes(little, 2) and not takes(little, 3)


def test_until_it_is_full_one_may_have_all_of_it(model: Model, people: list[Person]) -> None:
    tune(admission={"queue_cap": 6})
    has(people[0], model, 4)
    assert takes(people[0], 2) and not takes(people[0], 3)


def test_there_is_room_however_many_come(model: Model, people: list[Person]) -> None:
    tune(admission={"queue_cap": 1})
    for person in people:
        assert takes(person, 1)
        has(person, model, 1)
        assert not takes(person, 1)


def test_what_waits_elsewhere_or_has_ended_is_not_counted(model: Model, people: list[Person], settings: Any) -> None:
    settings.FLEX_REQUESTS = 1
    tune(admission={"queue_cap": 1})
    other = Model.objects.create(
        name="another", context_length=1, tiers=["paid"], price_input=0, price_cached=0, price_output=0
    )
    waiting(people[0], model, lane="paid")
    waiting(people[0], model, status="cancelled")
    waiting(people[1], other)
    check(people[0])
    with pytest.raises(RateLimited, match="this one has 1"):  # of an organization on all models together
        check(people[1])


def test_whom_this_process_lets_in_counts_at_once(model: Model, people: list[Person]) -> None:
    """The model's count is up to a second old."""
    tune(admission={"queue_cap": 6})
    has(people[0], model, 1)
    check(people[0], 3)
    check(people[1], 2)
    with pytest.raises(HighDemand):
        check(people[0], 3)


def test_what_was_refused_a_moment_ago_is_refused_without_a_look(
    model: Model, people: list[Person], settings: Any
) -> None:
    settings.FLEX_REQUESTS = 3
    has(people[0], model, 2)
    crowd.check_early(people[0].organization.id, NAME, 2)  # nothing is known yet
    with pytest.raises(RateLimited):
        check(people[0], 2)
    with CaptureQueriesContext(connection) as queries:
        with pytest.raises(RateLimited, match="this one has 2"):
            crowd.check_early(people[0].organization.id, NAME, 2)
        crowd.check_early(people[0].organization.id, NAME, 1)  # for which there is room
        crowd.check_early(people[1].organization.id, NAME, 2)
        crowd.check_early(people[0].organization.id, "another", 2)
    assert not queries
    check(people[0], 1)
    tune(admission={"queue_cap": 2})
    with pytest.raises(HighDemand):
        check(people[0], 1)
    with pytest.raises(HighDemand):
        crowd.check_early(people[0].organization.id, NAME, 1)
    anew()
    crowd.check_early(people[0].organization.id, NAME, 2)


async def test_a_newcomer_waits_beside_a_queue_that_another_has_filled(
    house: House, caller: Caller, flex: Chat, stranger: Person
) -> None:
    await atune(admission={"queue_cap": 2})
    async with caller.open("POST", PATH, flex(n=2)):
        await waits(2)
        answer = await caller.call("POST", PATH, flex())
        assert (answer.status, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert error_of(answer)["message"].startswith("High demand.")
        async with Caller(stranger.headers).open("POST", PATH, flex()):
            await waits(3)
    await wait_until(lambda: not ending.going)
    await over(house)


async def test_a_flood_of_refused_calls_costs_little(
    house: House, caller: Caller, flex: Chat, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is encoded, counted, or taken of the minute for them."""
    monkeypatch.setattr(crowd.known_refused, "seconds", 60.0)
    settings.FLEX_REQUESTS = 3
    async with caller.open("POST", PATH, flex(n=3)):
        await waits(3)
        first = await caller.call("POST", PATH, flex())
        assert (first.status, error_of(first)["code"]) == (429, "rate_limit_exceeded")
        encode, count, announce = AsyncMock(), Mock(), AsyncMock()
        monkeypatch.setattr(tokenization, "encode", encode)
        monkeypatch.setattr(crowd, "_count_own", count)
        monkeypatch.setattr(quota_services, "announce", announce)
        again = await caller.call("POST", PATH, flex())
        assert (again.status, again.body) == (first.status, first.body)
        for header in ("retry-after", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"):
            assert header in again.headers
        assert not (encode.called or count.called or announce.called)
    await wait_until(lambda: not ending.going)
    await over(house)
