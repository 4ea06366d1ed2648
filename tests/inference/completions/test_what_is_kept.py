"""What a call leaves behind: nothing that was said, unless an organization asked for it."""

import asyncio
import json
from typing import Any

import pytest

from chatsite.database import run_db
from inference.models import KeptCall, Partial, TextKeeping
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import PATH, Chat, chunks_of, over, rows, text_of
from tests.inference.runner.conftest import House
from tests.tuning import atune, patience
from tests.waiting import wait_until


async def test_nothing_that_was_said_is_kept(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine(tokens_per_second=40)
    await house.runner()
    saved: list[int] = []

    async def watch() -> None:
        while True:
            saved.append(await run_db(Partial.objects.count))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(watch())
    await caller.call("POST", PATH, chat("a secret river", max_tokens=30))
    task.cancel()
    assert max(saved) == 0
    assert await run_db(KeptCall.objects.count) == 0
    [row] = await rows()
    assert "secret" not in json.dumps(row.sampling)


@pytest.mark.parametrize("end", ["succeeded", "cancelled", "expired", "failed"])
async def test_what_a_caller_wrote_beside_the_prompt_goes_with_the_call(
    house: House, caller: Caller, chat: Chat, settings: Any, end: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "secret", "schema": {"title": "secret"}}}
    body = chat(n=2, max_tokens=9, top_k=5, seed=3, stop=["secret"], logit_bias={"7": 1}, response_format=form)
    if end == "expired":
        await atune(lanes=patience(0.5))
    else:
        engine = await house.engine(tokens_per_second=2 if end == "cancelled" else 500)
        if end == "failed":
            engine.faults.stream, engine.faults.after, engine.faults.times = "error", 2, 0
    await house.runner()
    async with caller.open("POST", PATH, body):
        await wait_until(there_are_two)
        if end == "cancelled":
            await wait_until(lambda: engine.running == 2)
        else:
            await over(house)
    await over(house)
    found = await rows()
    assert end in {row.status for row in found} <= {end, "cancelled"}  # one that fails ends the other
    for row in found:
        sampling = row.sampling
        assert (sampling["stop"], sampling["extra"], sampling["max_tokens"]) == ([], {"top_k": 5}, 9)
        assert "secret" not in json.dumps(sampling)


async def there_are_two() -> bool:
    return len(await rows()) == 2


async def test_texts_are_kept_where_an_organization_asked_for_it(house: House, caller: Caller, chat: Chat) -> None:
    await house.engine()
    await house.runner()
    keeping = TextKeeping(organization=house.person.organization)
    await run_db(keeping.save)
    answer = await caller.call("POST", PATH, chat("a river", max_tokens=5, n=2))
    streamed = text_of(chunks_of(await caller.call("POST", PATH, chat("a sea", max_tokens=5, stream=True))))
    first, second, third = await run_db(lambda: list(KeptCall.objects.order_by("id")))
    assert first.prompt == second.prompt == [{"role": "user", "content": "a river"}]
    assert [first.answer, second.answer] == [each["message"]["content"] for each in answer.json()["choices"]]
    assert (third.prompt, third.answer) == ([{"role": "user", "content": "a sea"}], streamed)
    assert {row.owner_id for row in await rows()} == {first.id, second.id, third.id}
    await over(house)
