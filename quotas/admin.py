"""Plans in the admin; the ledger to look at."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from quotas.models import LedgerEntry, Plan, Subscription


@admin.register(Plan)
class PlanAdmin(admin.ModelAdmin):
    list_display = ["name", "tier", "tokens_per_minute", "concurrent", "is_default"]


@admin.register(Subscription)
class SubscriptionAdmin(admin.ModelAdmin):
    list_display = ["organization", "plan", "since"]
    list_filter = ["plan"]
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name"]


@admin.register(LedgerEntry)
class LedgerEntryAdmin(admin.ModelAdmin):
    list_display = ["created_at", "organization_id", "model", "input", "cached", "output", "cost", "outcome", "source"]
    list_filter = ["model", "outcome", "source"]
    search_fields = ["=request_id", "=organization_id"]
    date_hierarchy = "created_at"
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
