"""What happens to a reply as its request goes on. Called by inference, in the transaction that changes the request."""

from typing import Any
from uuid import UUID

from chatsite.status import move
from conversations import prompting
from conversations.models import Message, MessageStatus
from conversations.selectors import RUNNING
from inference.events import pack_ids, unpack_ids
from inference.protocol import Outcome, PromptSource

TOKEN_BYTES = 4  # of a packed id
ENDINGS = {
    "succeeded": MessageStatus.COMPLETE,
    "cancelled": MessageStatus.STOPPED,
    "failed": MessageStatus.FAILED,
    "expired": MessageStatus.FAILED,
    "shed": MessageStatus.FAILED,
}
EMPTY_REPLY = ("empty_reply", "The model gave no answer. Try again.")


class MessageOwner:
    """The kind `message` of settings.REQUEST_OWNERS."""

    keeps_text = True

    @staticmethod
    def claimed(owner_id: UUID, request_id: UUID) -> None:
        move(Message.objects.filter(id=owner_id, request_id=request_id), MessageStatus.PENDING, MessageStatus.STREAMING)

    @staticmethod
    def finished(outcome: Outcome) -> None:
        """Folds the text in. Does nothing when the conversation was deleted, or another request has the message."""
        rows = Message.objects.filter(id=outcome.owner_id, request_id=outcome.request_id)
        message = Message()  # a new reply: nothing was there before, so nothing need be read
        if outcome.base_tokens:
            found = rows.only("content", "token_ids", "usage_input", "usage_cached", "usage_output").first()
            if found is None:
                return
            message = found
        changes = _text_of(message, outcome) | _usage_of(message, outcome)
        status, code, error = ENDINGS[outcome.status], outcome.error_code, outcome.error_message
        if status == MessageStatus.COMPLETE and not changes["content"].strip():
            status, (code, error) = MessageStatus.FAILED, EMPTY_REPLY
        failed = status == MessageStatus.FAILED
        changes |= {
            "finish_reason": "" if failed else outcome.finish_reason,
            "error_code": code if failed else "",
            "error_message": error[:500] if failed else "",
        }
        move(rows, [source for source in RUNNING if Message.TRANSITIONS.allows(source, status)], status, **changes)

    @staticmethod
    def prompt(owner_id: UUID, request_id: UUID) -> PromptSource | None:
        """The prompt of a running reply, built again; None when it is gone or another request has it."""
        rows = Message.objects.filter(id=owner_id, request_id=request_id)
        message = rows.select_related("conversation", "model").first()
        if message is None:
            return None
        return PromptSource(prompting.turns_of_reply(message), unpack_ids(message.token_ids))


def _text_of(message: Message, outcome: Outcome) -> dict[str, Any]:
    """A running reply's row holds what was there before the request: its text is added behind that."""
    token_ids = bytes(message.token_ids) + pack_ids(outcome.token_ids)
    return {
        "content": message.content + outcome.text,
        "token_ids": token_ids,
        "tokens": len(token_ids) // TOKEN_BYTES,
    }


def _usage_of(message: Message, outcome: Outcome) -> dict[str, Any]:
    """Over several requests: the prompt once, and each token of the final text once."""
    if outcome.base_tokens:
        return {"usage_output": message.usage_output + outcome.usage.output}
    usage = outcome.usage
    return {"usage_input": usage.input, "usage_cached": usage.cached, "usage_output": usage.output}
