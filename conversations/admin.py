"""Conversations in the admin: who, when, how much. What was said stays out of it."""

from django.contrib import admin
from django.http import HttpRequest

from conversations.models import Conversation, Message


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows change only through the services."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    list_display = ["id", "user", "model", "created_at", "updated_at"]
    list_filter = ["model"]
    list_select_related = ["user", "model"]
    search_fields = ["user__email"]
    fields = ["id", "organization", "user", "model", "created_at", "updated_at"]
    date_hierarchy = "updated_at"


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ["id", "conversation_id", "role", "status", "finish_reason", "error_code", "model", "created_at"]
    list_filter = ["role", "status", "error_code", "model"]
    list_select_related = ["model"]
    search_fields = ["=id", "=request_id"]
    fields = [
        "id",
        "conversation_id",
        "role",
        "status",
        "finish_reason",
        "error_code",
        "error_message",
        "model",
        "usage_input",
        "usage_cached",
        "usage_output",
        "left_out",
        "request_id",
        "created_at",
    ]
    date_hierarchy = "created_at"
