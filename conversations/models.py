"""Conversations and their messages: a row each, a tree by `parent`."""

import secrets

from django.contrib.postgres.fields import ArrayField
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
    seen_request = models.UUIDField(null=True)  # of the last reply that was looked at in a browser
    active_leaf = models.ForeignKey("Message", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["user", "-updated_at", "-id"], name="conversations_by_user")]
        permissions = [("read_text", "Can read what was said in conversations, with a reason")]

    def __str__(self) -> str:
        return f"conv_{self.id}"  # never the title: this is in lists and logs


class MessageStatus(models.TextChoices):
    PENDING = "pending"
    STREAMING = "streaming"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class Feedback(models.IntegerChoices):
    """What a reader thinks of a reply."""

    BAD = -1
    NONE = 0
    GOOD = 1


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
    feedback = models.SmallIntegerField(default=0, db_default=0, choices=Feedback.choices)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(status__in=MessageStatus.values), name="message_status_known"),
            models.CheckConstraint(condition=models.Q(feedback__in=Feedback.values), name="message_feedback_known"),
            models.UniqueConstraint(
                fields=["conversation"],
                condition=models.Q(status__in=["pending", "streaming"]),
                name="one_running_reply_per_conversation",
            ),
        ]
        indexes = [models.Index(fields=["conversation", "created_at"], name="messages_by_conversation")]

    def __str__(self) -> str:
        return f"msg_{self.id}"


def new_token() -> str:
    """What makes the address of a share: 128 random bits."""
    return secrets.token_urlsafe(16)


class Share(models.Model):
    """A conversation as it was at one moment, to be read by whoever has the address."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    token = models.CharField(max_length=32, unique=True, default=new_token, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="shares")
    leaf = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="+")  # the last turn that is shown
    title = models.CharField(max_length=200, blank=True, default="", db_default="")
    turns = ArrayField(models.UUIDField(), default=list, db_default=[])  # oldest first
    lengths = ArrayField(  # of each in characters: what came later is cut
        models.PositiveIntegerField(), default=list, db_default=[]
    )
    created_at = models.DateTimeField(default=timezone.now)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"share of conv_{self.conversation_id}"


class TextAccess(models.Model):
    """Somebody of the staff has read a conversation, and why. For ever: no foreign keys, never changed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    staff_id = models.UUIDField()
    staff_email = models.EmailField()
    conversation_id = models.UUIDField(db_index=True)
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "reading"

    def __str__(self) -> str:
        return f"{self.staff_email} read conv_{self.conversation_id}"
