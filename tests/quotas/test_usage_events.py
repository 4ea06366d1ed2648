"""Usage events: one for each settled request, as the ledger has it; a repeat of its last steps tells it again."""

from typing import Any

import pytest

from chatsite import redis
from chatsite.database import run_db
from chatsite.redis import async_client, sync_client
from inference.finishing import release
from inference.models import Request
from quotas import usage_events
from quotas.models import LedgerEntry
from tests.admin_rows import make_model, make_request
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)


def events() -> list[dict[str, str]]:
    entries: Any = sync_client().xrange("v1:usage")
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]


async def settled(person: Person, **changes: Any) -> Request:
    def make() -> Request:
        model = make_model()
        return make_request(person, model, released_at=None, **changes)

    return await run_db(make)


async def test_an_event_says_what_the_ledger_says(person: Person) -> None:
    request = await settled(person)
    assert await release([request]) == [request.id]
    [event] = events()
    row = await run_db(lambda: LedgerEntry.objects.get(request_id=request.id))
    assert event == {
        "request": f"req_{request.id}",
        "organization": person.organization.public_id,
        "user": person.user.public_id,
        "key": person.key.public_id,
        "model": "small",
        "lane": "paid",
        "input": "812",
        "cached": "640",
        "output": "245",
        "cost": f"{row.cost:f}",
        "currency": "USD",
        "outcome": "succeeded",
    }


async def test_without_a_key_and_without_an_answer(person: Person) -> None:
    request = await settled(person, api_key_id=None, status="cancelled", output_tokens=0, cached_tokens=0)
    await release([request])
    [event] = events()
    assert (event["key"], event["outcome"], event["input"], event["output"]) == ("", "cancelled", "0", "0")


async def test_it_goes_with_the_other_last_steps_in_one_round_trip(person: Person, monkeypatch: Any) -> None:
    request = await settled(person)
    await release([request])  # the scripts are known from now on
    sent: list[int] = []

    async def counted(client: Any, commands: Any) -> Any:
        sent.append(len(commands))
        return await send(client, commands)

    send = redis.send
    monkeypatch.setattr(redis, "send", counted)
    assert await release([request]) == [request.id]
    assert len(sent) == 1
    assert [event["request"] for event in events()] == [f"req_{request.id}"] * 2  # at least once


async def test_the_stream_is_capped(monkeypatch: Any) -> None:
    script = usage_events.PUBLISH
    for number in range(500):
        await script(async_client(), "v1:usage", 100, "request", number)
    assert 100 <= sync_client().xlen("v1:usage") < 300
