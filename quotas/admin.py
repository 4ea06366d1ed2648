"""Plans in the admin; the ledger to look at."""

from django.contrib import admin

from chatsite.look_only import LookOnlyAdmin
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
class LedgerEntryAdmin(LookOnlyAdmin):
    list_display = ["created_at", "organization_id", "model", "input", "cached", "output", "cost", "outcome", "source"]
    list_filter = ["model", "outcome", "source"]
    search_fields = ["=request_id", "=organization_id"]
    date_hierarchy = "created_at"
    show_full_result_count = False
