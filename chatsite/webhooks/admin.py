"""Webhooks in the admin, to look at and to switch off; and what was sent."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from chatsite.accounts import audit
from chatsite.accounts.protocol import Via
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import list_link
from chatsite.look_only import LookOnlyAdmin
from chatsite.webhooks import services
from chatsite.webhooks.models import Delivery, Endpoint


@admin.register(Endpoint)
class EndpointAdmin(LookOnlyAdmin):
    list_display = ["url", "organization", "events", "active", "created_at"]
    list_filter = ["active"]
    list_select_related = ["organization"]
    ordering = ["-id"]
    search_fields = ["url", "organization__name"]
    search_help_text = "Search by address or organization, or by the id of either"
    id_prefix = "hook"
    id_lookups = {"hook": ["id"], "org": ["organization_id"]}
    fields = ["public", "organization", "url", "events", "active", "created_at", "sent"]
    readonly_fields = ["public", "sent"]
    actions = ["switch_off"]

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("webhooks.change_endpoint"))

    @admin.action(description="Switch off", permissions=["switch"])
    def switch_off(self, request: HttpRequest, queryset: QuerySet[Endpoint]) -> None:
        by = audit.actor_of(request, Via.ADMIN)
        for endpoint in queryset:
            if services.switch_off(endpoint.pk, by):
                self.log_change(request, endpoint, "Switched off.")
        self.message_user(request, "They are off. Their owners can switch them on again.", messages.SUCCESS)

    @admin.display(description="sent")
    def sent(self, row: Endpoint) -> str:
        return list_link("webhooks_delivery", "Deliveries", q=row.public_id).html


@admin.register(Delivery)
class DeliveryAdmin(LookOnlyAdmin):
    list_display = ["brief", "created_at", "event", "endpoint", "state", "attempts", "outcome"]
    list_filter = ["state", "event", MadeFilter]
    list_select_related = ["endpoint"]
    ordering = ["-id"]
    sortable_by = ["brief"]
    search_help_text = "Search by the id of a delivery, a webhook or an organization"
    id_prefix = "evt"
    id_lookups = {"evt": ["id"], "hook": ["endpoint_id"], "org": ["endpoint__organization_id"]}
    fields = [
        "public", "endpoint", "event", "state", "attempts", "due_at", "status", "outcome", "took_ms", "created_at",
        "ended_at", "body",
    ]  # fmt: skip
    readonly_fields = ["public"]
