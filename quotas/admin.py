"""Plans and subscriptions in the admin; the ledger to look at."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from chatsite.accounts.admin_people import OfPeopleAdmin
from chatsite.admin_figures import figure
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import NOTHING, id_link, list_link, row_link
from chatsite.admin_search import SearchableAdmin
from quotas import services
from quotas.admin_budgets import BudgetAdmin, PriceAdmin, StopAdmin, model_names
from quotas.admin_filters import ModelFilter
from quotas.admin_usage import TopSpenderAdmin, UsageCheckAdmin, UsageDayAdmin, UsageFindingAdmin, UsageHourAdmin
from quotas.billing.admin_refunds import Refunding
from quotas.models import LedgerEntry, Plan, Subscription
from quotas.selectors import known_plans

__all__ = [
    "BudgetAdmin",
    "LedgerEntryAdmin",
    "PlanAdmin",
    "PriceAdmin",
    "StopAdmin",
    "SubscriptionAdmin",
    "TopSpenderAdmin",
    "UsageCheckAdmin",
    "UsageDayAdmin",
    "UsageFindingAdmin",
    "UsageHourAdmin",
]


class PlanForm(forms.ModelForm):
    """What the database insists on, said in words."""

    models = forms.MultipleChoiceField(
        required=False, widget=UnfoldAdminCheckboxSelectMultipleWidget, help_text="None chosen: all that the tier has"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "models" in self.fields:  # not where the page is to look at only
            gone = [(name, f"{name} (gone)") for name in self.instance.models if (name, name) not in model_names()]
            chosen: Any = self.fields["models"]
            chosen.choices = [*model_names(), *gone]

    def clean_models(self) -> list[str]:
        """Each once, however often a hand-made form names it."""
        return list(dict.fromkeys(self.cleaned_data["models"]))

    def clean_tokens_per_minute(self) -> int:
        return self._positive("tokens_per_minute", "A plan needs at least one token a minute.")

    def clean_concurrent(self) -> int:
        return self._positive("concurrent", "A plan needs at least one reply at a time.")

    def clean_requests_per_minute(self) -> int | None:
        if self.cleaned_data["requests_per_minute"] is None:
            return None
        return self._positive("requests_per_minute", "A plan needs at least one request a minute, or no such limit.")

    def _positive(self, name: str, message: str) -> int:
        value = int(self.cleaned_data[name])
        if value < 1:
            raise forms.ValidationError(message)
        return value


class OutcomeFilter(admin.SimpleListFilter):
    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(name, name) for name in ("succeeded", "failed", "cancelled", "expired", "shed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(outcome=self.value()) if self.value() else queryset


@admin.register(Plan)
class PlanAdmin(SearchableAdmin):
    form = PlanForm
    list_display = [
        "name", "tier", "weight", "tokens_per_minute", "requests_per_minute", "concurrent", "monthly_tokens",
        "monthly_cost", "is_default", "organizations",
    ]  # fmt: skip
    list_filter = ["tier"]
    ordering = ["tokens_per_minute"]
    search_fields = ["name"]
    search_help_text = "Search by name, by the plan's id or an organization's"
    id_prefix = "plan"
    readonly_fields = ["is_default"]
    id_lookups = {"plan": ["id"], "org": ["subscription__organization_id"]}
    actions = ["make_default"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Plan]:
        found: QuerySet[Plan] = super().get_queryset(request).annotate(subscribers=Count("subscription"))
        return found

    @admin.display(description="organizations")
    def organizations(self, row: Any) -> str:
        return list_link("quotas_subscription", f"{row.subscribers:,}", plan__id__exact=row.pk).html

    @admin.action(description="Make this the default for new organizations", permissions=["change"])
    def make_default(self, request: HttpRequest, queryset: QuerySet[Plan]) -> None:
        chosen = list(queryset[:2])
        if len(chosen) != 1:
            self.message_user(request, "Choose one plan: there is one default.", messages.ERROR)
            return
        services.make_default(chosen[0])
        self.log_change(request, chosen[0], "Made the default.")
        self.message_user(request, f"New organizations are on “{chosen[0]}” now.", messages.SUCCESS)

    def save_model(self, request: HttpRequest, obj: Plan, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        known_plans.clear()

    def has_delete_permission(self, request: HttpRequest, obj: Plan | None = None) -> bool:
        """The default stays."""
        return (obj is None or not obj.is_default) and bool(super().has_delete_permission(request, obj))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Plans are deleted one by one."""
        return {name: each for name, each in super().get_actions(request).items() if name != "delete_selected"}


@admin.register(Subscription)
class SubscriptionAdmin(SearchableAdmin):
    list_display = ["organization", "plan", "since"]
    list_filter = ["plan"]
    list_select_related = ["organization", "plan"]
    date_hierarchy = "since"
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name", "organization__memberships__user__email"]
    search_help_text = "Search by organization, by a member's email, or by the id of either or of a plan"
    id_lookups = {
        "org": ["organization_id"],
        "user": ["organization__memberships__user_id"],
        "plan": ["plan_id"],
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Subscription | None = None) -> list[str]:
        return ["organization", "since"] if obj else ["since"]

    def save_model(self, request: HttpRequest, obj: Subscription, form: Any, change: bool) -> None:
        if "plan" in form.changed_data:
            obj.since = timezone.now()
        super().save_model(request, obj, form, change)
        known_plans.drop(obj.organization_id)

    def delete_model(self, request: HttpRequest, obj: Subscription) -> None:
        super().delete_model(request, obj)
        known_plans.clear()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        super().delete_queryset(request, queryset)
        known_plans.clear()


@admin.register(LedgerEntry)
class LedgerEntryAdmin(Refunding, OfPeopleAdmin):
    list_display = [
        "id", "created_at", "organization_link", "user_link", "model", "tokens", "money", "outcome", "source",
    ]  # fmt: skip
    list_filter = ["kind", "source", "lane", OutcomeFilter, ModelFilter, MadeFilter]
    ordering = ["-id"]
    sortable_by = ["id"]
    search_help_text = "Search by the id of a request, organization, user or API key, or by email"
    id_lookups = {
        "req": ["request_id"],
        "org": ["organization_id"],
        "user": ["user_id"],
        "key": ["api_key_id"],
    }
    fields = [
        "id", "created_at", "request_link", "kind", "seq", "organization_link", "user_link", "key_link", "model",
        "lane", "input", "cached", "output", "price_link", "money", "outcome", "source", "times",
    ]  # fmt: skip
    readonly_fields = [
        "id", "request_link", "organization_link", "user_link", "key_link", "price_link", "money", "times",
    ]  # fmt: skip

    @admin.display(description="request")
    def request_link(self, row: LedgerEntry) -> str:
        return id_link("inference_request", "req", row.request_id)

    @admin.display(description="price list")
    def price_link(self, row: LedgerEntry) -> str:
        return row_link("quotas_price", row.price, str(row.price)).html if row.price else NOTHING

    @admin.display(description="queued / first token / total")
    def times(self, row: LedgerEntry) -> str:
        shown = (NOTHING if each is None else f"{each:,} ms" for each in (row.queue_ms, row.ttft_ms, row.total_ms))
        return " / ".join(shown)

    @admin.display(description="tokens in / cached / out")
    def tokens(self, row: LedgerEntry) -> str:
        return f"{row.input:,} / {row.cached:,} / {row.output:,}"

    @admin.display(description=f"cost in {settings.CURRENCY}")
    def money(self, row: LedgerEntry) -> str:
        return figure(row.cost)
