"""What the native API takes and gives, for API views, raw routes and the OpenAPI document alike."""

from typing import Any

from rest_framework import serializers

from chatsite.ids import public_id
from chatsite.text_checks import check_line
from conversations.models import Conversation, Message, MessageStatus
from conversations.selectors import Page


class IdField(serializers.CharField):
    """An id in its public form, such as `msg_0193...`; read only."""

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> str:
        return public_id(self.prefix, value)


class ConversationSerializer(serializers.Serializer):
    id = IdField("conv")
    title = serializers.CharField()
    model = serializers.CharField(source="model_id")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class ConversationPage(serializers.Serializer):
    data = ConversationSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField(allow_null=True)


class ConversationChanges(serializers.Serializer):
    """Fields that are left out stay as they are; a new conversation's model is then the first that the plan allows."""

    model = serializers.CharField(min_length=1, max_length=128, required=False)
    title = serializers.CharField(max_length=200, required=False, allow_blank=True, validators=[check_line])
    system_prompt = serializers.CharField(max_length=32_768, required=False, allow_blank=True, trim_whitespace=False)


class UsageSerializer(serializers.Serializer):
    """Tokens; `cached` is part of `input`."""

    input = serializers.IntegerField()
    cached = serializers.IntegerField()
    output = serializers.IntegerField()


class ErrorSerializer(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()


class MessageSerializer(serializers.Serializer):
    """`content` of a running reply is what is saved of it. Only replies have a model, usage and a request."""

    id = IdField("msg")
    conversation = IdField("conv")
    parent = IdField("msg", allow_null=True)  # type: ignore[assignment]
    role = serializers.ChoiceField(choices=Message.Role.values)
    content = serializers.CharField()
    status = serializers.ChoiceField(choices=MessageStatus.values)
    finish_reason = serializers.CharField(allow_null=True)
    model = serializers.CharField(allow_null=True)
    usage = UsageSerializer(allow_null=True)
    error = ErrorSerializer(allow_null=True)
    request = IdField("req", allow_null=True)
    created_at = serializers.DateTimeField()

    def to_representation(self, instance: Message) -> dict[str, Any]:
        return message_data(instance)


class MessagePage(serializers.Serializer):
    data = MessageSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField(allow_null=True)


DECISION = """Why it went where it went. `predicted`: seconds to the first token (`raw`, `expected`, `p90`); `x`: `p90`
by what its lane should have; `shed_probability`. `attempts`: of each the `replica`, `why`, the seconds that it had
`waited`, by how many wtok its organization was ahead of the lane's least served one (`lead`), `preemptions`, `uncached`
tokens, and the `candidates` with the terms of their scores. `instead_of`: where the smaller model ran it. `answers`:
the ids of all, in the record of the first of several answers."""


class RequestSerializer(serializers.Serializer):
    """What became of one request. What is not known (yet) is null."""

    id = IdField("req")
    status = serializers.CharField()
    lane = serializers.CharField()
    model = serializers.CharField()
    replica = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()
    queued_ms = serializers.IntegerField(allow_null=True)
    ttft_ms = serializers.IntegerField(allow_null=True)
    predicted_ttft_ms = serializers.IntegerField(allow_null=True)
    total_ms = serializers.IntegerField(allow_null=True)
    usage = UsageSerializer(allow_null=True)
    cost = serializers.CharField(allow_null=True)
    decision = serializers.DictField(allow_null=True, help_text=DECISION)


def message_data(message: Message) -> dict[str, Any]:
    """A message in the API's form. Its text is taken as it is: see `selectors.read_message` for running ones."""
    reply = message.role == Message.Role.ASSISTANT
    usage = {"input": message.usage_input, "cached": message.usage_cached, "output": message.usage_output}
    failed = message.status == MessageStatus.FAILED
    return {
        "id": public_id("msg", message.id),
        "conversation": public_id("conv", message.conversation_id),
        "parent": public_id("msg", message.parent_id) if message.parent_id else None,
        "role": message.role,
        "content": message.content,
        "status": message.status,
        "finish_reason": message.finish_reason or None,
        "model": message.model_id,
        "usage": usage if reply else None,
        "error": {"code": message.error_code, "message": message.error_message} if failed else None,
        "request": public_id("req", message.request_id) if message.request_id else None,
        "created_at": message.created_at.isoformat().replace("+00:00", "Z"),
    }


def message_page(page: Page[Message]) -> dict[str, Any]:
    return {"data": [message_data(message) for message in page.data], "next_cursor": page.next_cursor}


def conversation_data(conversation: Conversation) -> dict[str, Any]:
    return dict(ConversationSerializer(conversation).data)


def conversation_page(page: Page[Conversation]) -> dict[str, Any]:
    return {"data": [conversation_data(row) for row in page.data], "next_cursor": page.next_cursor}
