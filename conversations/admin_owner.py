"""What a request's page in the admin shows of the message that it belongs to."""

from uuid import UUID

from chatsite.admin_links import Link, row_link
from chatsite.ids import public_id
from conversations.models import Message

MOST_MESSAGES = 2000  # of one conversation, when its requests are looked for


class MessagePages:
    """See inference.admin_owners."""

    @staticmethod
    def links(owner_id: UUID) -> list[Link]:
        conversation = Message.objects.filter(id=owner_id).values_list("conversation_id", flat=True).first()
        if conversation is None:
            return []
        return [
            row_link("conversations_message", owner_id, public_id("msg", owner_id)),
            row_link("conversations_conversation", conversation, public_id("conv", conversation)),
        ]

    @staticmethod
    def owners_in(container_id: UUID) -> list[UUID]:
        replies = Message.objects.filter(conversation_id=container_id, role=Message.Role.ASSISTANT)
        return list(replies.order_by("-created_at").values_list("id", flat=True)[:MOST_MESSAGES])
