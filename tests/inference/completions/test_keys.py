"""What the terms of an API key mean to calls in the form of the OpenAI API."""

from typing import Any

import pytest

from chatsite.accounts import keys
from chatsite.accounts.keys import Terms
from chatsite.accounts.protocol import COMMAND
from chatsite.database import run_db
from chatsite.scopes import Scope
from inference.models import Request
from tests.conversations.callers import Caller
from tests.inference.completions.route_calls import Chat, over
from tests.inference.runner.conftest import House

PATH = "/v1/chat/completions"


async def has(house: House, **terms: Any) -> None:
    """The house's key, from now on; somebody answers."""
    await house.engine()
    await house.runner()
    person = house.person
    await run_db(keys.change_api_key, person.user, person.key.id, Terms("Billing", **terms), COMMAND)


async def test_a_key_that_may_only_read_lists_models_and_writes_nothing(
    house: House, caller: Caller, chat: Chat
) -> None:
    await has(house, scopes=(Scope.READ,))
    assert (await caller.call("GET", "/v1/models")).status == 200
    answer = await caller.call("POST", PATH, chat())
    assert (answer.status, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    assert (answer.json()["error"]["type"], answer.json()["error"]["param"]) == ("permission_error", None)
    assert answer.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="chat"'
    assert await Request.objects.acount() == 0


async def test_a_key_that_may_only_chat_lists_nothing(house: House, caller: Caller, chat: Chat) -> None:
    await has(house, scopes=(Scope.CHAT,))
    assert (await caller.call("POST", PATH, chat(max_tokens=3))).status == 200
    assert (await caller.call("GET", "/v1/models")).json()["error"]["code"] == "insufficient_scope"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"requests_per_minute": 2}, "The API key “Billing” allows 2 requests a minute, and they are used up."),
        ({"tokens_per_minute": 60}, "The API key “Billing” allows 60 tokens a minute;"),
    ],
)
async def test_the_key_s_own_limit_refuses_and_is_named(
    house: House, caller: Caller, chat: Chat, terms: dict[str, int], said: str
) -> None:
    await has(house, **terms)
    for _ in range(2):
        answer = await caller.call("POST", PATH, chat("Hi", max_tokens=3, n=2))
        if answer.status == 429:
            break
    else:
        answer = await caller.call("POST", PATH, chat("Hi", max_tokens=20, n=2))
    assert answer.status == 429, answer.body
    error = answer.json()["error"]
    assert error["message"].startswith(said) and error["code"] == "rate_limit_exceeded"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    kind = next(iter(terms)).partition("_")[0]
    assert (error["type"], error["param"]) == (kind, None)
    assert answer.headers[f"x-ratelimit-limit-{kind}"] == str(next(iter(terms.values())))
    await over(house)


async def test_more_answers_at_once_than_the_key_allows_are_not_worth_a_retry(
    house: House, caller: Caller, chat: Chat
) -> None:
    await has(house, concurrent=2)
    answer = await caller.call("POST", PATH, chat(max_tokens=3, n=3))
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    error = answer.json()["error"]
    assert "the API key “Billing” allows 2 at once" in error["message"]
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert (await caller.call("POST", PATH, chat(max_tokens=3, n=2))).status == 200
    await over(house)
