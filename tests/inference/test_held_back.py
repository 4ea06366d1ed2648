"""Which of those that wait outside the queues have a turn in a sweep: fair between organizations, however many keys."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from chatsite.database import run_db
from chatsite.ids import new_id
from inference import held_back
from inference.models import Model, Request
from tests.admin_rows import make_request
from tests.conftest import Person
from tests.inference.runner.conftest import model

__all__ = ["model"]
pytestmark = pytest.mark.usefixtures("database")
OLD = timedelta(seconds=3)


def waiting(person: Person, model: Model, key: UUID | None = None, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "status": "queued",
        "finish_reason": "",
        "lane": "batch",
        "attempt": 0,
        "api_key_id": key,
        "deadline": timezone.now() + timedelta(minutes=5),
        "claimed_at": None,
        "first_token_at": None,
        "finished_at": None,
        "released_at": None,
    }
    return make_request(person, model, **{**values, **changes})


async def due() -> list[UUID]:
    return [request_id for request_id, *_ in await held_back.due(OLD)]


async def test_many_keys_of_one_organization_have_no_more_turns_than_one(
    model: Model, person: Person, stranger: Person
) -> None:
    """Each that is entered takes a moment of a runner, and of its lane's turn."""
    keys = [new_id() for _ in range(50)]
    many = await run_db(lambda: {waiting(person, model, key).id: key for key in keys for _ in range(4)})
    [other] = await run_db(lambda: [waiting(stranger, model).id])
    found = await due()
    assert other in found
    theirs = Counter(many[each] for each in found if each in many)
    assert theirs.total() == held_back.AGAIN
    assert len(theirs) == held_back.OF_ONE


async def test_in_the_end_each_caller_has_a_turn(model: Model, person: Person) -> None:
    keys = [new_id() for _ in range(20)]
    one_each = await run_db(lambda: {waiting(person, model, key).id for key in keys})
    seen: set[UUID] = set()
    for _ in range(200):
        seen |= set(await due())
        if seen == one_each:
            break
    assert seen == one_each


async def test_who_is_noted_has_none_and_the_others_of_the_organization_do(model: Model, person: Person) -> None:
    first, second = new_id(), new_id()
    noted = await run_db(waiting, person, model, first)
    other = await run_db(waiting, person, model, second)
    await held_back.note(noted, 5)
    assert await held_back.is_noted(noted) and not await held_back.is_noted(other)
    assert await due() == [other.id]


@pytest.mark.parametrize("why", ["cancel_requested_at", "deadline"])
async def test_what_is_to_end_is_told_whoever_else_waits(
    model: Model, person: Person, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(held_back, "CALLERS", 0)
    await run_db(waiting, person, model)
    ending = await run_db(lambda: waiting(person, model, **{why: timezone.now()}))
    await held_back.note(ending, 5)
    assert await due() == [ending.id]
