"""A reply's events as server-sent events, in the form of the wire conventions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from chatsite.ids import public_id
from chatsite.raw import sse_event
from conversations.follow import Done, Failed, Queued, ReplyEvent, Retrying, Started, Token, follow_from
from conversations.selectors import Reply
from inference.protocol import Cursor


async def sse_events(reply: Reply, cursor: Cursor | None) -> AsyncGenerator[bytes, None]:
    """The reply's events after `cursor`, encoded."""
    async with aclosing(follow_from(reply, cursor)) as events:
        async for event in events:
            yield encode_event(event)


def encode_event(event: ReplyEvent) -> bytes:
    """One server-sent event, in the form of the wire conventions."""
    if isinstance(event, Queued):
        return sse_event(event_data(event))
    return sse_event(event_data(event), str(event.cursor))


def event_data(event: ReplyEvent) -> dict[str, Any]:
    """The JSON of an event."""
    match event:
        case Token():
            return {"type": "token", "text": event.text}
        case Queued():
            return {
                "type": "queued",
                "messageId": public_id("msg", event.message_id),
                "position": event.position,
                "eta": event.eta,
            }
        case Started():
            user = event.user_message_id
            return {
                "type": "started",
                "messageId": public_id("msg", event.message_id),
                "userMessageId": public_id("msg", user) if user else None,
            }
        case Retrying():
            return {"type": "retrying", "attempt": event.attempt}
        case Done():
            return {
                "type": "done",
                "messageId": public_id("msg", event.message_id),
                "status": event.status,
                "finish_reason": event.finish_reason,
                "usage": event.usage.as_dict(),
            }
        case Failed():
            return {
                "type": "error",
                "messageId": public_id("msg", event.message_id),
                "code": event.code,
                "message": event.message,
                "retryable": event.retryable,
            }
