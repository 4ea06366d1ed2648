"""Kept texts of stateless calls in the admin: who asked for it, whose calls. What was said: only with a reason."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from chatsite.accounts.admin_people import OfPeopleAdmin
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import Link, id_link, joined, list_link, row_link, short_link
from chatsite.admin_reading import ReadWithReason
from chatsite.admin_search import SearchableAdmin
from chatsite.ids import public_id
from chatsite.look_only import LookOnlyAdmin
from inference import keeping
from inference.models import CallReading, KeptCall, TextKeeping


class KeptCallPages:
    """See inference.admin_owners."""

    @staticmethod
    def links(owner_id: UUID) -> list[Link]:
        there = KeptCall.objects.filter(id=owner_id).exists()
        return [row_link("inference_keptcall", owner_id, public_id("call", owner_id))] if there else []

    @staticmethod
    def owners_in(container_id: UUID) -> list[UUID]:
        return []


@admin.register(TextKeeping)
class TextKeepingAdmin(SearchableAdmin):
    """Deleting a row ends it: what is kept is deleted within the hour."""

    list_display = ["organization", "days", "since", "calls"]
    list_select_related = ["organization"]
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name", "organization__memberships__user__email"]
    search_help_text = "Search by organization, by a member's email, or by the id of either"
    id_lookups = {"org": ["organization_id"], "user": ["organization__memberships__user_id"]}

    def get_readonly_fields(self, request: HttpRequest, obj: TextKeeping | None = None) -> list[str]:
        return ["organization", "since"] if obj else ["since"]

    def save_model(self, request: HttpRequest, obj: TextKeeping, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        keeping.known_days.clear()

    def delete_model(self, request: HttpRequest, obj: TextKeeping) -> None:
        super().delete_model(request, obj)
        keeping.known_days.clear()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[TextKeeping]) -> None:
        super().delete_queryset(request, queryset)
        keeping.known_days.clear()

    @admin.display(description="kept calls")
    def calls(self, row: TextKeeping) -> str:
        return list_link("inference_keptcall", "Kept calls", q=public_id("org", row.pk)).html


@admin.register(KeptCall)
class KeptCallAdmin(ReadWithReason, OfPeopleAdmin):
    may_read = staticmethod(keeping.may_read)
    read_with_reason = staticmethod(keeping.read_with_reason)
    list_display = ["brief", "created_at", "model", "user_link", "organization_link"]
    list_filter = [MadeFilter]
    ordering = ["-id"]
    sortable_by = ["brief"]
    search_help_text = "Search by an id: of the call, its request, user, organization or key; or by an email address"
    id_prefix = "call"
    id_lookups = {
        "call": ["id"],
        "req": ["request_id"],
        "user": ["user_id"],
        "org": ["organization_id"],
        "key": ["api_key_id"],
    }
    fields = [
        "public", "created_at", "model", "user_link", "organization_link", "key_link", "request_link", "see", "text",
    ]  # fmt: skip
    readonly_fields = ["public", "user_link", "organization_link", "key_link", "request_link", "see", "text"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[KeptCall]:
        found: QuerySet[KeptCall] = super().get_queryset(request).defer("prompt", "answer")
        return found

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("inference.delete_keptcall")

    @admin.display(description="request")
    def request_link(self, row: KeptCall) -> str:
        return id_link("inference_request", "req", row.request_id)

    @admin.display(description="see also")
    def see(self, row: KeptCall) -> str:
        return joined([list_link("inference_callreading", "Who has read it", q=self.shown_id(row))])

    @admin.display(description="what was said")
    def text(self, row: KeptCall) -> str:
        return Link("Read the text…", self.read_address(row.pk)).html


@admin.register(CallReading)
class CallReadingAdmin(LookOnlyAdmin):
    list_display = ["created_at", "staff_link", "call_brief", "reason"]
    list_filter = [MadeFilter]
    ordering = ["-id"]
    sortable_by = ["created_at"]
    date_hierarchy = "created_at"
    search_fields = ["staff_email", "reason"]
    search_help_text = "Search by the id of the call or of who read it, by email, or in the reasons"
    id_prefix = "reading"
    id_lookups = {"reading": ["id"], "call": ["call_id"], "user": ["staff_id"]}
    fields = ["created_at", "staff_link", "call_link", "reason"]
    readonly_fields = ["staff_link", "call_link"]

    @admin.display(description="who read")
    def staff_link(self, row: CallReading) -> str:
        return row_link("accounts_user", row.staff_id, row.staff_email).html

    @admin.display(description="call")
    def call_link(self, row: CallReading) -> str:
        return id_link("inference_keptcall", "call", row.call_id)

    @admin.display(description="call")
    def call_brief(self, row: CallReading) -> str:
        return short_link("inference_keptcall", "call", row.call_id)
