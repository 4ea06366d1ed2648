"""Conversations and their messages: a row each, a tree by `parent`."""

from django.db import models
from django.utils import timezone

from chatsite.accounts.models import Organization, User
from chatsite.ids import new_id
from chatsite.status import TransitionTable
from inference.models import Model


class Conversation(models.Model):
    """A user's thread with a model."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="conversations")
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+")
    title = models.CharField(max_length=200, blank=True)
    system_prompt = models.TextField(blank=True)
    active_leaf = models.ForeignKey("Message", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["user", "-updated_at", "-id"], name="conversations_by_user")]

    def __str__(self) -> str:
        return self.title or f"conv_{self.id}"


class MessageStatus(models.TextChoices):
    PENDING = "pending"
    STREAMING = "streaming"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class Message(models.Model):
    """One turn. A reply's text is folded in here when it ends; until then it is in `inference.Partial` rows."""

    TRANSITIONS = TransitionTable(
        MessageStatus,
        {
            "pending": ["streaming", "stopped", "failed"],
            "streaming": ["complete", "stopped", "failed"],
            "complete": ["pending"],  # Continue, after the length limit
            "stopped": ["pending"],
            "failed": ["pending"],
        },
    )

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    parent = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="children")
    role = models.CharField(max_length=16, choices=Role.choices)
    content = models.TextField(blank=True)
    status = models.CharField(max_length=16, choices=MessageStatus.choices, default=MessageStatus.COMPLETE)
    finish_reason = models.CharField(max_length=16, blank=True)
    model = models.ForeignKey(Model, null=True, on_delete=models.PROTECT, related_name="+")
    # A reply's own ids, so that Continue joins exactly; packed as in Partial.
    token_ids = models.BinaryField(default=b"")
    tokens = models.PositiveIntegerField(default=0)  # of the content, to fit the context
    usage_input = models.PositiveIntegerField(default=0)
    usage_cached = models.PositiveIntegerField(default=0)
    usage_output = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)  # earlier turns that the model did not see
    error_code = models.CharField(max_length=64, blank=True)
    error_message = models.CharField(max_length=500, blank=True)
    request_id = models.UUIDField(null=True)  # the last one
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(status__in=MessageStatus.values), name="message_status_known"),
            models.UniqueConstraint(
                fields=["conversation"],
                condition=models.Q(status__in=["pending", "streaming"]),
                name="one_running_reply_per_conversation",
            ),
        ]
        indexes = [models.Index(fields=["conversation", "created_at"], name="messages_by_conversation")]

    def __str__(self) -> str:
        return f"msg_{self.id}"
