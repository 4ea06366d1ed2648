"""Filters that several of the admin's lists share."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet, UUIDField
from django.http import HttpRequest
from django.utils import timezone

SLACK = timedelta(minutes=1)  # between making an id and noting the time
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def first_id(moment: datetime) -> UUID:
    """The smallest UUIDv7 of a moment: with it an index on ids finds rows by time."""
    milliseconds = max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


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
