"""Deleting a conversation while others write into it."""

import asyncio

from chatsite.database import run_db
from chatsite.errors import AppError
from conversations import services
from conversations.models import Conversation, Message
from conversations.shares import create_share
from inference.models import Model
from tests.conftest import Person


async def test_a_conversation_is_deleted_whatever_is_written_into_it_meanwhile(person: Person, model: Model) -> None:
    """Each ends as if it had come first or last: nothing is half there, and nothing but NotFound is raised."""
    for _ in range(4):
        fresh = await run_db(services.create_conversation, person.session_principal)
        turns = [services.send(person.session_principal, fresh.id, "Hello") for _ in range(2)]
        shares = [run_db(create_share, person.session_principal, fresh.id) for _ in range(2)]
        names = [
            run_db(lambda: services.update_conversation(person.session_principal, fresh.id, title="New"))  # noqa: B023
            for _ in range(2)
        ]
        deletion = services.delete_conversation(person.session_principal, fresh.id)
        outcomes = await asyncio.gather(*turns, deletion, *shares, *names, return_exceptions=True)
        unexpected = [one for one in outcomes if isinstance(one, BaseException) and not isinstance(one, AppError)]
        assert unexpected == []
        assert not await run_db(Conversation.objects.filter(id=fresh.id).exists)
        assert not await run_db(Message.objects.filter(conversation_id=fresh.id).exists)
