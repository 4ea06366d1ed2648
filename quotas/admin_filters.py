"""Filters of the lists about usage."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from quotas.admin_budgets import model_names
from quotas.periods import today

DAYS = {"1": "today", "7": "7 days", "30": "30 days", "90": "90 days"}


class ModelFilter(SimpleListFilter):
    """Models are few, and usage is long: their names are not gathered from it."""

    title = "model"
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return model_names()

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(model=self.value()) if self.value() else queryset


class UsageDayFilter(SimpleListFilter):
    title = "days"
    parameter_name = "days"

    def lookups(self, request: HttpRequest, model_admin: object) -> Sequence[tuple[str, str]]:
        return list(DAYS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen: Any = self.value()
        if chosen not in DAYS:
            return queryset
        return queryset.filter(day__gt=today() - timedelta(days=int(chosen)))


class FoundFilter(UsageDayFilter):
    title = "found in"
    parameter_name = "found_in"

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        chosen: Any = self.value()
        if chosen not in DAYS:
            return queryset
        return queryset.filter(found_at__gt=timezone.now() - timedelta(days=int(chosen)))
