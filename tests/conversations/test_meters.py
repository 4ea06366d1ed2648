"""The figures under the message box."""

import pytest

from chatsite.errors import Unavailable
from conversations import meters
from conversations.meters import Meters, context_used, load_meters, meters_of
from quotas.protocol import PlanLimits, Remaining, Standing
from tests.conftest import Person
from tests.conversations.pages import add_turn, in_database, make_conversation

PLAN = PlanLimits("free", "free", 60_000, 2)


def test_what_they_say() -> None:
    found = meters_of(480, 4096, Remaining((Standing(PLAN.bucket, tokens=2_000, running=1),)))
    assert found.context == "12 % of 4,096 tokens"
    assert found.quota == "58,000 of 60,000 tokens left this minute"
    assert (found.context_percent, found.quota_left, found.quota_limit) == (12, 58_000, 60_000)
    assert (found.context_short, found.quota_short) == ("12 %", "58,000 tokens left this minute")


def test_what_is_not_known_is_not_said() -> None:
    assert meters_of(0, 4096, None) == Meters(context_length=4096)
    assert meters_of(100, 0, None).context == ""
    assert meters_of(0, 0, None).quota_short == ""


@pytest.mark.parametrize(("used", "percent"), [(0, 0), (1, 1), (4096, 100), (9000, 100)])
def test_a_percentage_is_rounded_up_and_ends_at_100(used: int, percent: int) -> None:
    assert Meters(context_used=used, context_length=4096).context_percent == percent


def test_messages_that_the_model_does_not_see_do_not_count(person: Person) -> None:
    conversation = make_conversation(person)
    assert context_used(conversation.id) == 0
    first = add_turn(conversation, "q1", "a1", tokens=100)
    assert context_used(conversation.id) == 108
    add_turn(conversation, "q2", "a2", tokens=50)
    assert context_used(conversation.id) == 166
    add_turn(conversation, "q3", "a3", tokens=30, left_out=2)
    assert context_used(conversation.id) == 30 + 50 + 2 * 8
    conversation.active_leaf = first
    conversation.save()
    assert context_used(conversation.id) == 108


async def test_they_are_loaded_for_a_page(database: None, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = await in_database(make_conversation, person)
    await in_database(add_turn, conversation, "q", "a", tokens=401)
    found = await load_meters(person.principal, conversation, 4096)
    assert found.context == "10 % of 4,096 tokens"
    assert found.quota.endswith("tokens left this minute")
    assert (await load_meters(person.principal, None, 4096)).context == ""

    async def away(*args: object) -> Remaining:
        raise Unavailable

    monkeypatch.setattr(meters.quota_selectors, "remaining", away)
    assert (await load_meters(person.principal, conversation, 4096)).quota == ""
