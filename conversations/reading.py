"""Reading what somebody else wrote: only with a reason, which is kept for ever."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog
from django.db import transaction

from chatsite.accounts.models import User
from chatsite.errors import NotFound, PermissionDenied
from chatsite.reasons import stated
from conversations import selectors
from conversations.models import Conversation, Message, TextAccess

PERMISSION: Final = "conversations.read_text"
MOST_TURNS: Final = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Reading:
    """The active branch, oldest first, at most its last MOST_TURNS turns, and the record of who looks at it.

    `others`: messages that are not among the turns, such as other versions of them.
    """

    record: TextAccess
    title: str
    system_prompt: str
    turns: list[Message]
    others: int


def may_read(staff: User) -> bool:
    return staff.is_active and staff.is_staff and staff.has_perm(PERMISSION)


def read_with_reason(staff: User, conversation_id: UUID, reason: str) -> Reading:
    """Writes the record, then reads; without a record there is no text.

    Raises PermissionDenied, NotFound, and InvalidInput for a reason that is none; then nothing was written.
    """
    if not may_read(staff):
        raise PermissionDenied("You may not read conversations.")
    reason = stated(reason)
    with transaction.atomic():
        conversation = Conversation.objects.filter(id=conversation_id).first()
        if conversation is None:
            raise NotFound
        record = TextAccess.objects.create(
            staff_id=staff.id, staff_email=staff.email, conversation_id=conversation_id, reason=reason
        )
        nearest_first = selectors.branch(conversation.id, conversation.active_leaf_id, MOST_TURNS)
        turns = selectors.with_current_text(nearest_first)[::-1]
        others = conversation.messages.count() - len(turns)
    log.info("conversation read", staff=str(staff.id), conversation=str(conversation_id), record=str(record.id))
    return Reading(record, conversation.title, conversation.system_prompt, turns, others)
