"""What a plan caps, and which models it has, on the OpenAI-compatible routes."""

import json
from typing import Any

import pytest

from chatsite.database import run_db
from inference.completions import acceptance
from inference.completions.calls import Call, read_chat, read_completion
from inference.completions.errors import InvalidValue
from inference.errors import ContextTooLong, ModelNotAllowed
from inference.models import Model, Request
from inference.services import cache_salt
from quotas import selectors
from quotas.models import Plan
from quotas.protocol import Prices
from quotas.services import sync_price
from tests.conftest import Person
from tests.inference.runner.conftest import model

__all__ = ["model"]


def completion(tokens: int, **more: Any) -> Call:
    return read_completion(json.dumps({"model": "smollm2-135m", "prompt": [5] * tokens, **more}).encode())


async def change(**values: Any) -> None:
    await run_db(Plan.objects.filter(name="demo").update, **values)
    selectors.known_plans.clear()


async def request_of(accepted: acceptance.Accepted) -> Request:
    return await run_db(Request.objects.get, id=accepted.requests[0])


async def test_the_context_cap_refuses_and_names_the_plan(model: Model, person: Person) -> None:
    await change(context_tokens=100)
    with pytest.raises(
        ContextTooLong, match=r"The demo plan's maximum context length is 100 tokens\. The prompt has 90"
    ):
        await acceptance.accept(person.principal, completion(90, max_tokens=11))
    await acceptance.accept(person.principal, completion(90, max_tokens=10))
    await change(context_tokens=1_000_000)
    with pytest.raises(ContextTooLong, match="This model's maximum context length is 4096"):
        await acceptance.accept(person.principal, completion(90, max_tokens=4096))


async def test_a_prompt_that_fills_the_context_leaves_no_room_for_an_answer(model: Model, person: Person) -> None:
    call = read_chat(b'{"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hello"}]}')
    tokens = (await acceptance.accept(person.principal, call)).prompt_tokens
    await change(context_tokens=tokens)
    words = rf"The prompt has {tokens} tokens, which leaves no room for an answer\. Shorten it\."
    with pytest.raises(ContextTooLong, match=words):
        await acceptance.accept(person.principal, call)


async def test_the_output_cap_refuses_what_was_asked_for_and_shortens_what_was_not(
    model: Model, person: Person
) -> None:
    await change(output_tokens=50)
    with pytest.raises(InvalidValue, match="The demo plan allows at most 50 tokens in an answer"):
        await acceptance.accept(person.principal, completion(9, max_tokens=51))
    call = read_chat(b'{"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hello"}]}')
    request = await request_of(await acceptance.accept(person.principal, call))
    assert request.sampling["max_tokens"] == 50


async def test_only_the_models_of_the_plan_are_served(model: Model, person: Person) -> None:
    await change(models=["other"])
    with pytest.raises(ModelNotAllowed):
        await acceptance.accept(person.principal, completion(9))
    await change(models=["other", model.name])
    await acceptance.accept(person.principal, completion(9))


@pytest.mark.parametrize("isolation", ["own", "shared"])
async def test_the_cache_is_its_own_or_shared_as_the_plan_says(model: Model, person: Person, isolation: str) -> None:
    await change(isolation=isolation)
    request = await request_of(await acceptance.accept(person.principal, completion(9)))
    assert request.cache_salt == cache_salt(person.organization.id, shared=isolation == "shared")
    assert (request.cache_salt == cache_salt(person.user.id, shared=True)) == (isolation == "shared")


async def test_the_whole_of_what_may_be_billed_is_reserved_and_only_the_likely_part_of_the_minute(
    model: Model, person: Person
) -> None:
    await run_db(sync_price, model.name, Prices(*(await run_db(_prices, model))))
    await change(monthly_tokens=10_000, monthly_cost="1.00", tokens_per_minute=5_000)
    await acceptance.accept(person.principal, completion(90, max_tokens=4000))
    plan = await selectors.aplan_of(person.organization.id)
    tokens, cost = await selectors.spendings(person.organization.id, plan.budgets)
    assert (tokens.taken, tokens.reserved) == (4090, 4090)
    assert cost.taken == 90 * 1_000 + 4000 * 4_000  # at 0.10 and 0.40 per million, in 1e-10
    minute = (await selectors.remaining(person.principal, plan)).standings[0].tokens
    assert 1000 < minute <= 90 + 1024


def _prices(model: Model) -> tuple[Any, Any, Any]:
    model.refresh_from_db()
    return model.price_input, model.price_cached, model.price_output
