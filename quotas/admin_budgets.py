"""Prices, budgets and emergency stops in the admin."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatsite.accounts import audit
from chatsite.accounts.models import ApiKey, Membership
from chatsite.accounts.protocol import Via
from chatsite.admin_links import short_link
from chatsite.admin_search import SearchableAdmin
from quotas.billing import money_history
from quotas.models import Budget, Price, Stop
from quotas.money import shown
from quotas.prices import AHEAD, known_prices
from quotas.selectors import known_plans

FURTHEST = timedelta(days=2 * 365 + 1)  # that a price may begin ahead of its time


def model_names() -> list[tuple[str, str]]:
    """Names of models, as choices; models are few."""
    names = apps.get_model("inference", "Model").objects.values_list("name", flat=True)
    return [(name, name) for name in names]


class PriceForm(forms.ModelForm):
    model = forms.ChoiceField(choices=model_names)

    def clean_valid_from(self) -> Any:
        begins = self.cleaned_data["valid_from"]
        if begins > timezone.now() + FURTHEST:
            raise forms.ValidationError("A price begins within two years: look at the year again.")
        if begins < timezone.now() + AHEAD:
            raise forms.ValidationError("A price begins in the future: what is accepted already is billed as promised.")
        return begins


@admin.register(Price)
class PriceAdmin(SearchableAdmin):
    """Prices are added; one that is not in force yet can be taken back."""

    form = PriceForm
    list_display = ["model", "valid_from", "input", "cached", "output", "source"]
    list_filter = ["source"]
    ordering = ["-valid_from", "model"]
    search_fields = ["model"]
    search_help_text = "Search by the name of a model"
    fields = ["model", "valid_from", "input", "cached", "output"]

    def has_change_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        waits = obj is None or obj.valid_from > timezone.now() + AHEAD
        return waits and bool(super().has_delete_permission(request, obj))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        known_prices.drop(obj.model)

    def delete_model(self, request: HttpRequest, obj: Price) -> None:
        super().delete_model(request, obj)
        known_prices.drop(obj.model)


class BudgetForm(forms.ModelForm):
    """What the database insists on, said in words."""

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return data
        if (data["limit_cost"] is None) == (data["limit_tokens"] is None):
            raise forms.ValidationError("Give one limit: a cost, or tokens.")
        if data["period"] == Budget.Period.ROLLING and data["days"] is None:
            self.add_error("days", "How many days?")
        if data["period"] == Budget.Period.MONTH:
            data["days"] = None
        data["subject_id"] = self._subject(data)
        if not self.errors and self._is_there(data):
            raise forms.ValidationError("There is such a budget already: change that one.")
        return data

    def _subject(self, data: dict[str, Any]) -> UUID | None:
        """Of a key the chain of those that replaced one another."""
        scope: str = data["scope"]
        subject: UUID | None = data["subject_id"]
        organization = data.get("organization") or self.instance.organization
        if scope == Budget.Scope.ORGANIZATION:
            return None
        if scope == Budget.Scope.MEMBER:
            if not subject or not Membership.objects.filter(organization=organization, user_id=subject).exists():
                self.add_error("subject_id", "That is no member of the organization: give the id of a user.")
            return subject
        keys = ApiKey.objects.filter(organization=organization)
        row = keys.filter(Q(id=subject) | Q(chain_id=subject)).first() if subject else None
        if row is None:
            self.add_error("subject_id", "That is no API key of the organization: give the id of one.")
            return subject
        return row.chain_id

    def _is_there(self, data: dict[str, Any]) -> bool:
        same = Budget.objects.filter(
            organization=data.get("organization") or self.instance.organization,
            scope=data["scope"],
            subject_id=data["subject_id"],
            period=data["period"],
            days=data["days"],
            hard=data["hard"],
            limit_tokens__isnull=data["limit_tokens"] is None,
        )
        return same.exclude(pk=self.instance.pk).exists()


@admin.register(Budget)
class BudgetAdmin(SearchableAdmin):
    form = BudgetForm
    list_display = ["organization", "scope", "whose", "period_text", "limit", "hard", "changed_at"]
    list_filter = ["scope", "hard", "period"]
    list_select_related = ["organization"]
    ordering = ["-id"]
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name"]
    search_help_text = "Search by organization, or by the id of one, of a user or of an API key"
    id_lookups = {"org": ["organization_id"], "user": ["subject_id"], "key": ["subject_id"]}
    fields = ["organization", "scope", "subject_id", "period", "days", "limit_cost", "limit_tokens", "hard"]

    def get_readonly_fields(self, request: HttpRequest, obj: Budget | None = None) -> list[str]:
        return ["organization"] if obj else []

    @admin.display(description="member or key")
    def whose(self, row: Budget) -> str:
        if row.scope == Budget.Scope.MEMBER:
            return short_link("accounts_user", "user", row.subject_id)
        return short_link("accounts_apikey", "key", row.subject_id)

    @admin.display(description="period")
    def period_text(self, row: Budget) -> str:
        return "month" if not row.days else f"{row.days} days" if row.days > 1 else "1 day"

    @admin.display(description="limit")
    def limit(self, row: Budget) -> str:
        return f"{row.limit_tokens:,} tokens" if row.limit_cost is None else shown(row.limit_cost, settings.CURRENCY)

    def save_model(self, request: HttpRequest, obj: Budget, form: Any, change: bool) -> None:
        """In one transaction with what the organization's history says of it, as all changes in the admin are."""
        by = audit.actor_of(request, Via.ADMIN)
        before = money_history.terms_of(Budget.objects.get(pk=obj.pk)) if change else {}
        super().save_model(request, obj, form, change)
        if change:
            money_history.changed(obj, before, by)
        else:
            money_history.added(obj, by)
        known_plans.drop(obj.organization_id)

    def delete_model(self, request: HttpRequest, obj: Budget) -> None:
        money_history.deleted(obj, audit.actor_of(request, Via.ADMIN))
        super().delete_model(request, obj)
        known_plans.drop(obj.organization_id)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Budget]) -> None:
        for budget in queryset:
            self.delete_model(request, budget)


class StopForm(forms.ModelForm):
    def clean_organization(self) -> Any:
        organization = self.cleaned_data["organization"]
        if Stop.objects.filter(organization=organization).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError("It is stopped already.")
        return organization


@admin.register(Stop)
class StopAdmin(SearchableAdmin):
    """Adding one stops; deleting it lets work in again."""

    form = StopForm
    list_display = ["__str__", "message", "since"]
    list_select_related = ["organization"]
    ordering = ["-since"]
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name"]
    search_help_text = "Search by organization or its id"
    id_lookups = {"org": ["organization_id"]}
    fields = ["organization", "message"]

    def get_readonly_fields(self, request: HttpRequest, obj: Stop | None = None) -> list[str]:
        """A stop is of whom it is: another organization's is another stop."""
        return ["organization"] if obj else []

    def save_model(self, request: HttpRequest, obj: Stop, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if obj.organization_id is not None and form.changed_data:
            money_history.stopped(obj.organization_id, obj.message, audit.actor_of(request, Via.ADMIN))
        known_plans.clear()

    def delete_model(self, request: HttpRequest, obj: Stop) -> None:
        super().delete_model(request, obj)
        if obj.organization_id is not None:
            money_history.resumed(obj.organization_id, audit.actor_of(request, Via.ADMIN))
        known_plans.clear()

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Stop]) -> None:
        for stop in queryset:
            self.delete_model(request, stop)
