"""Filters that several of the admin's lists share."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet, UUIDField
from django.http import HttpRequest
from django.utils import timezone

from chatsite.ids import first_id

SLACK = timedelta(minutes=1)  # between making an id and noting the time


class MadeFilter(SimpleListFilter):
    """By age. Tables that grow for ever have no index on time; ids with the time in them are used in its place."""

    title = "made"
    parameter_name = "made"

    def lookups(self, request: HttpRequest, model_admin: object) -> Sequence[tuple[str, str]]:
        return [("hour", "past hour"), ("day", "past 24 hours"), ("week", "past 7 days"), ("month", "past 30 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        ages = {"hour": 1, "day": 24, "week": 24 * 7, "month": 24 * 30}
        hours = ages.get(self.value() or "")
        return made_since(queryset, timezone.now() - timedelta(hours=hours)) if hours else queryset


def made_since(queryset: QuerySet, moment: datetime) -> QuerySet:
    """Rows with `created_at` from `moment` on."""
    found = queryset.filter(created_at__gte=moment)
    has_time_in_id = isinstance(queryset.model._meta.pk, UUIDField)
    return found.filter(pk__gte=first_id(moment - SLACK)) if has_time_in_id else found
