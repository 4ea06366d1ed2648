"""Who waits long is offered the model that stands in for the one that is busy."""

import pytest

from chatsite.database import run_db
from conversations import selectors, services
from conversations.errors import NotWaiting
from conversations.models import Conversation, Message
from inference import selectors as inference_selectors
from inference.models import Model
from inference.protocol import QueuePlace
from tests.conftest import Person
from tests.inference.runner.conftest import MODEL_PATH, House, house, model
from tests.tuning import atune
from tests.waiting import wait_until

__all__ = ["house", "model"]


@pytest.fixture
def big(model: Model) -> Model:
    """Nobody serves it. The plain model stands in for it."""
    return Model.objects.create(
        name="big",
        title="Big",
        context_length=4096,
        path=MODEL_PATH,
        fallback=model.name,
        tiers=["free", "paid"],
        price_input="1",
        price_cached="1",
        price_output="1",
    )


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
    accepted = await services.take_smaller(house.person.session_principal, message.id)
    reply = await run_db(selectors.get_message, house.person.session_principal, accepted.message_id)
    done = await house.ended(reply)
    assert (done.status, done.model_id, done.parent_id) == ("complete", house.model.name, message.parent_id)
    given_up = await house.reload(message)
    assert (given_up.status, given_up.content) == ("stopped", "")
    await house.nothing_is_held()


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
