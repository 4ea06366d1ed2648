"""What was written into conversations, and prompts that came of it."""

from typing import Any
from uuid import UUID

from chatsite.database import run_db
from conversations import services
from conversations.acceptance import Accepted
from conversations.models import Conversation, Message
from inference.models import Model
from inference.tokenization import load_tokenizer
from tests.conftest import Person
from tests.conversations.callers import ended, prompt_ids


async def messages(conversation: Conversation) -> list[Message]:
    return await run_db(lambda: list(conversation.messages.order_by("created_at", "id")))


async def get(message_id: UUID) -> Message:
    return await run_db(Message.objects.get, id=message_id)


async def reload(conversation: Conversation) -> Conversation:
    return await run_db(Conversation.objects.get, id=conversation.id)


async def prompt_text(accepted: Accepted, model: Model) -> str:
    """What the engine would be given, as text with its control tokens."""
    tokenizer = await load_tokenizer(model)
    return tokenizer._tokenizer.decode(await prompt_ids(accepted.request_id), skip_special_tokens=False)


async def say(person: Person, conversation: Conversation, text: str, reply: str = "Fine.", **changes: Any) -> Message:
    """A message and its reply."""
    accepted = await services.send(person.principal, conversation.id, text)
    return await ended(accepted.message_id, reply, **changes)
