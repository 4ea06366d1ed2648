"""Conversations in the admin: who, when, how much. What was said: only with a reason (conversations.reading)."""

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from chatsite.accounts.protocol import Principal
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import NOTHING, Link, id_link, joined, list_link, row_link, short_link
from chatsite.admin_reading import ReadWithReason
from chatsite.look_only import LookOnlyAdmin
from conversations import reading, services, shares
from conversations.models import Conversation, Message, Share, TextAccess


@admin.register(Conversation)
class ConversationAdmin(ReadWithReason, LookOnlyAdmin):
    may_read = staticmethod(reading.may_read)
    read_with_reason = staticmethod(reading.read_with_reason)
    list_display = ["brief", "user_link", "model", "turns", "created_at", "updated_at"]
    list_filter = ["model", MadeFilter]
    list_select_related = ["user", "model"]
    ordering = ["-id"]
    sortable_by = ["brief"]
    search_fields = ["user__email"]
    search_help_text = "Search by an id: of the conversation, a message, its request, user or organization; or by email"
    id_prefix = "conv"
    id_lookups = {
        "conv": ["id"],
        "user": ["user_id"],
        "org": ["organization_id"],
        "msg": ["message"],
        "req": ["request"],
        "share": ["share"],
    }
    fields = ["public", "user_link", "organization_link", "model", "turns", "created_at", "updated_at", "see", "text"]
    readonly_fields = ["public", "user_link", "organization_link", "turns", "see", "text"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        rows = Message.objects.filter(conversation=OuterRef("pk")).values("conversation").annotate(rows=Count("pk"))
        count = Coalesce(Subquery(rows.values("rows")), 0)
        found: QuerySet[Conversation] = super().get_queryset(request).annotate(message_count=count)
        return found.defer("title", "system_prompt")

    def match(self, name: str, value: UUID) -> Q:
        inside: dict[str, QuerySet] = {
            "message": Message.objects.filter(id=value),
            "request": Message.objects.filter(request_id=value),
            "share": Share.objects.filter(id=value),
        }
        if name not in inside:
            return super().match(name, value)
        return Q(pk__in=list(inside[name].values_list("conversation_id", flat=True)[:1]))

    # Deleting goes through the service, which stops what runs

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("conversations.delete_conversation")

    def delete_model(self, request: HttpRequest, obj: Conversation) -> None:
        owner = Principal(obj.user_id, obj.organization_id)
        async_to_sync(services.delete_conversation)(owner, obj.id)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Counts what goes with them; a list of a thousand messages helps nobody."""
        rows = list(objs)
        count = Message.objects.filter(conversation__in=rows).count()
        return [str(row) for row in rows], {"conversations": len(rows), "messages": count}, set(), []

    # Columns

    @admin.display(description="user")
    def user_link(self, row: Conversation) -> str:
        return row_link("accounts_user", row.user_id, row.user.email).html

    @admin.display(description="organization")
    def organization_link(self, row: Conversation) -> str:
        return row_link("accounts_organization", row.organization_id, row.organization.name).html

    @admin.display(description="messages")
    def turns(self, row: Any) -> str:
        return f"{row.message_count:,}"

    @admin.display(description="see also")
    def see(self, row: Conversation) -> str:
        query = self.shown_id(row)
        return joined(
            [
                list_link("conversations_message", "Messages", q=query),
                list_link("inference_request", "Requests", q=query),
                list_link("conversations_share", "Shares", q=query),
                list_link("conversations_textaccess", "Who has read it", q=query),
            ]
        )

    @admin.display(description="what was said")
    def text(self, row: Conversation) -> str:
        return Link("Read the text…", self.read_address(row.pk)).html


class OfConversationAdmin(LookOnlyAdmin):
    """Rows with `conversation_id`."""

    @admin.display(description="conversation")
    def conversation_link(self, row: Any) -> str:
        return id_link("conversations_conversation", "conv", row.conversation_id)

    @admin.display(description="conversation")
    def conversation_brief(self, row: Any) -> str:
        return short_link("conversations_conversation", "conv", row.conversation_id)


@admin.register(Message)
class MessageAdmin(OfConversationAdmin):
    list_display = ["brief", "created_at", "conversation_brief", "role", "status", "ended", "model"]
    list_filter = ["role", "status", "model", "feedback", MadeFilter]
    list_select_related = ["model"]
    ordering = ["-id"]
    sortable_by = ["brief"]
    search_help_text = "Search by an id: of the message or the one it answers, its request, conversation, or user"
    id_prefix = "msg"
    id_lookups = {
        "msg": ["id", "parent_id"],
        "conv": ["conversation_id"],
        "req": ["request_id"],
        "user": ["conversation__user_id"],
        "org": ["conversation__organization_id"],
    }
    fields = [
        "public", "conversation_link", "parent_link", "request_link", "role", "status", "finish_reason", "error_code",
        "error_message", "model", "tokens", "usage_input", "usage_cached", "usage_output", "left_out", "feedback",
        "created_at",
    ]  # fmt: skip
    readonly_fields = ["public", "conversation_link", "parent_link", "request_link"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        found: QuerySet[Message] = super().get_queryset(request).defer("content", "token_ids")
        return found

    @admin.display(description="ended by")
    def ended(self, row: Message) -> str:
        return row.finish_reason or row.error_code or NOTHING

    @admin.display(description="answers")
    def parent_link(self, row: Message) -> str:
        return id_link("conversations_message", "msg", row.parent_id)

    @admin.display(description="request")
    def request_link(self, row: Message) -> str:
        return id_link("inference_request", "req", row.request_id)


@admin.register(Share)
class ShareAdmin(OfConversationAdmin):
    """Without the address: whoever has it may read without a reason."""

    list_display = ["brief", "conversation_brief", "owner", "created_at", "revoked_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter), MadeFilter]
    list_select_related = ["conversation__user"]
    ordering = ["-id"]
    search_fields = ["conversation__user__email"]
    search_help_text = "Search by the id of the share, its conversation or user, or by email"
    id_prefix = "share"
    id_lookups = {"share": ["id"], "conv": ["conversation_id"], "user": ["conversation__user_id"]}
    fields = ["public", "conversation_link", "owner", "created_at", "revoked_at"]
    readonly_fields = ["public", "conversation_link", "owner"]
    actions = ["revoke"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("conversations.change_share")

    @admin.action(description="Revoke the selected shares", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Share]) -> None:
        for row in queryset.select_related("conversation"):
            owner = Principal(row.conversation.user_id, row.conversation.organization_id)
            shares.revoke_share(owner, row.token)
            self.log_change(request, row, "Revoked.")
        self.message_user(request, "The selected shares lead nowhere now.", messages.SUCCESS)

    @admin.display(description="user")
    def owner(self, row: Share) -> str:
        return row_link("accounts_user", row.conversation.user_id, row.conversation.user.email).html


@admin.register(TextAccess)
class TextAccessAdmin(OfConversationAdmin):
    list_display = ["created_at", "staff_link", "conversation_brief", "reason"]
    list_filter = [MadeFilter]
    ordering = ["-id"]
    sortable_by = ["created_at"]
    date_hierarchy = "created_at"
    search_fields = ["staff_email", "reason"]
    search_help_text = "Search by the id of the conversation or of who read it, by email, or in the reasons"
    id_lookups = {"access": ["id"], "conv": ["conversation_id"], "user": ["staff_id"]}
    id_prefix = "access"
    fields = ["created_at", "staff_link", "conversation_link", "reason"]
    readonly_fields = ["staff_link", "conversation_link"]

    @admin.display(description="who read")
    def staff_link(self, row: TextAccess) -> str:
        return row_link("accounts_user", row.staff_id, row.staff_email).html
