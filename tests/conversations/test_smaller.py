"""Who waits long is offered the model that stands in for the one that is busy."""

import asyncio
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from chatsite.database import run_db
from conversations import selectors, services
from conversations.errors import NotWaiting
from conversations.models import Conversation, Message
from inference import selectors as inference_selectors
from inference import services as inference_services
from inference.errors import ContextTooLong, HighDemand
from inference.models import Model, Replica, Request
from inference.protocol import QueuePlace
from quotas.errors import RequestsPerMinuteExceeded, Stopped
from quotas.models import Plan
from quotas.services import stop, subscribe
from tests.conftest import Person
from tests.inference.runner.conftest import House, big, house, model
from tests.tuning import atune
from tests.waiting import wait_until

__all__ = ["big", "house", "model"]


async def ask_big(person: Person, big: Model) -> Message:
    principal = person.session_principal
    conversation = await run_db(
        lambda: Conversation.objects.create(user=person.user, organization=person.organization, model=big)
    )
    accepted = await services.send(principal, conversation.id, "Hello", model=big.name, max_tokens=8)
    return await run_db(selectors.get_message, principal, accepted.message_id)


async def place(message: Message) -> QueuePlace:
    found = await inference_selectors.queue_place(message.request_id)  # type: ignore[arg-type]
    assert found is not None
    return found


async def test_a_free_smaller_model_is_offered_after_a_while_and_answers(house: House, big: Model) -> None:
    await house.engine()
    await house.runner()
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    assert (await place(message)).smaller == ""
    await atune(admission={"offer_smaller_seconds": 0.0})
    assert (await place(message)).smaller == "SmolLM2"
    waited = message.request_id
    accepted = await services.take_smaller(house.person.session_principal, message.id)
    assert (accepted.message_id, accepted.user_message_id) == (message.id, message.parent_id)
    done = await house.ended(await house.reload(message))
    assert (done.status, done.model_id) == ("complete", house.model.name)
    assert await run_db(selectors.siblings, done) == [message.id]  # no empty version stays behind
    given_up = await run_db(Request.objects.get, id=waited)
    assert (given_up.status, given_up.model_id, given_up.output_tokens) == ("cancelled", "big", 0)
    assert done.request_id != waited
    await house.nothing_is_held()


async def test_a_reply_that_an_engine_has_by_now_goes_on(
    house: House, big: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    engine = await house.engine(tokens_per_second=50)
    await house.runner()
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    withdraw = inference_services.withdraw

    async def late(request_id: UUID) -> bool:
        """An engine for the large model comes up between the look and the step."""
        await run_db(Replica.objects.create, model=big, url=engine.url)
        await house.runner()
        await house.emitted(message, 1)
        return await withdraw(request_id)

    monkeypatch.setattr(inference_services, "withdraw", late)
    with pytest.raises(NotWaiting):
        await services.take_smaller(house.person.session_principal, message.id)
    done = await house.ended(message)
    assert (done.status, done.model_id, done.tokens) == ("complete", "big", 8)
    assert await run_db(selectors.siblings, done) == [message.id]
    assert await run_db(Request.objects.count) == 1
    await house.nothing_is_held()


async def test_pressed_twice_it_is_taken_once(house: House, big: Model) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    await house.engine()
    await house.runner()
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    presses = [services.take_smaller(house.person.session_principal, message.id) for _ in range(3)]
    results = await asyncio.gather(*presses, return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["Accepted", "NotWaiting", "NotWaiting"]
    done = await house.ended(await house.reload(message))
    assert (done.status, done.model_id) == ("complete", house.model.name)
    with pytest.raises(NotWaiting):
        await services.take_smaller(house.person.session_principal, message.id)
    assert await run_db(selectors.siblings, done) == [message.id]
    assert await run_db(Request.objects.count) == 2
    await house.nothing_is_held()


async def test_text_that_was_to_be_continued_stays_as_a_version(house: House, big: Model) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    await house.engine()
    await house.runner()
    message = await house.ended(await house.ask(20))
    await run_db(lambda: Message.objects.filter(id=message.id).update(model=big))
    principal = house.person.session_principal
    continued = await services.continue_reply(principal, message.id, max_tokens=8)
    await wait_until(lambda: inference_selectors.queue_place(continued.request_id))
    accepted = await services.take_smaller(principal, message.id)
    assert accepted.message_id != message.id
    reply = await run_db(selectors.get_message, principal, accepted.message_id)
    assert (await house.ended(reply)).model_id == house.model.name
    kept = await house.reload(message)
    assert (kept.status, kept.content) == ("stopped", message.content)
    assert await run_db(selectors.siblings, reply) == [message.id, reply.id]


async def limited(house: House, **limits: int) -> None:
    """Another plan for the person, with the same models."""

    def subscribe_to() -> None:
        plan = Plan.objects.get(is_default=True)
        plan.pk, plan.name, plan.is_default = None, "narrow", False
        for name, value in limits.items():
            setattr(plan, name, value)
        plan.save(force_insert=True)
        subscribe(house.person.organization.id, plan.name)

    await run_db(subscribe_to)


@pytest.mark.parametrize("why", ["requests", "stopped", "too long", "high demand"])
async def test_who_is_refused_the_smaller_one_waits_on_at_their_place(
    house: House, big: Model, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    engine = await house.engine()
    await house.runner()
    await limited(house, requests_per_minute=1 if why == "requests" else 100)
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    before = await house.request(message)
    refusal: type[Exception]
    if why == "requests":
        refusal = RequestsPerMinuteExceeded
    elif why == "stopped":
        refusal = Stopped
        await run_db(stop, house.person.organization.id)
    else:
        refusal = ContextTooLong if why == "too long" else HighDemand
        where = (services, "fit") if why == "too long" else (inference_services, "decide")
        monkeypatch.setattr(*where, AsyncMock(side_effect=refusal()))
    with pytest.raises(refusal):
        await services.take_smaller(house.person.session_principal, message.id)
    after, kept = await house.request(message), await house.reload(message)
    assert (after.status, after.created_at, after.deadline) == ("queued", before.created_at, before.deadline)
    assert (kept.status, kept.request_id, kept.model_id) == ("pending", before.id, "big")
    assert (await place(message)).position == 1
    await run_db(Replica.objects.create, model=big, url=engine.url)
    await house.runner()
    done = await house.ended(message)
    assert (done.status, done.model_id, done.tokens) == ("complete", "big", 8)
    assert await run_db(Request.objects.count) == 1
    await house.nothing_is_held()


async def test_a_plan_s_only_place_is_enough(house: House, big: Model) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    await house.engine()
    await house.runner()
    await limited(house, concurrent=1)
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    await services.take_smaller(house.person.session_principal, message.id)
    done = await house.ended(await house.reload(message))
    assert (done.status, done.model_id) == ("complete", house.model.name)
    await house.nothing_is_held()


async def test_it_is_not_taken_before_it_is_offered(house: House, big: Model) -> None:
    await house.engine()
    await house.runner()
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    with pytest.raises(NotWaiting):
        await services.take_smaller(house.person.session_principal, message.id)
    assert (await house.reload(message)).status == "pending"


async def test_one_that_is_not_ready_is_not_offered(house: House, big: Model) -> None:
    await atune(admission={"offer_smaller_seconds": 0.0})
    await house.runner()
    message = await ask_big(house.person, big)
    await wait_until(lambda: inference_selectors.queue_place(message.request_id))  # type: ignore[arg-type]
    assert (await place(message)).smaller == ""
    with pytest.raises(NotWaiting):
        await services.take_smaller(house.person.session_principal, message.id)
    assert (await house.reload(message)).status == "pending"


async def test_a_reply_that_has_begun_is_not_given_up(house: House, big: Model) -> None:
    await house.engine()
    await house.runner()
    message = await house.ask(20)
    await house.ended(message)
    with pytest.raises(NotWaiting):
        await services.take_smaller(house.person.session_principal, message.id)
