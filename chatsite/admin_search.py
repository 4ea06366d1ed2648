"""Search in the admin's lists: by any id that a row has or refers to, else by text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR
from django.core.exceptions import BadRequest
from django.core.paginator import Paginator
from django.db.models import IntegerField, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from chatsite import typed
from chatsite.admin_fields import CheckedFields, is_value
from chatsite.admin_figures import readable
from chatsite.admin_links import short
from chatsite.ids import public_id

MAX_TERM = 200  # characters; nothing that can be searched for is longer
MAX_COUNTED = 10_000  # rows; a list says "10000" where there are more, which takes milliseconds and not minutes
FILTER_PARTS = {
    "exact", "in", "isnull", "isempty", "gt", "gte", "lt", "lte", "range", "date", "year", "month", "day",
}  # fmt: skip
ID = re.compile(r"(?:(?P<prefix>[a-z]+)_)?(?P<id>[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12})", re.IGNORECASE)


@dataclass(frozen=True)
class WantedId:
    """An id that somebody looks for. `prefix` is empty for a bare UUID."""

    id: UUID
    prefix: str = ""


def parse_wanted(text: str) -> WantedId | None:
    """The id in `text`, as the API writes it or bare; None for anything else."""
    found = ID.fullmatch(text.strip()) if len(text) <= MAX_TERM else None
    return WantedId(UUID(found["id"]), (found["prefix"] or "").lower()) if found else None


def _is_plain(query: QueryDict) -> bool:
    """Without NUL, which may stand in what is searched for alone; and the number of the page is one."""
    texts = [value for name, values in query.lists() if name != SEARCH_VAR for value in values]
    return not any("\0" in each for each in [*query, *texts]) and all(map(typed.is_whole, query.getlist(PAGE_VAR)))


def _is_year(text: str) -> bool:
    return typed.is_whole(text) and int(text) in typed.YEARS


class Results(ChangeList):
    """A list that finds nothing for a search that cannot be asked of PostgreSQL."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet:
        found: QuerySet = super().get_queryset(request, *args, **kwargs)
        return found.none() if "\0" in request.GET.get(SEARCH_VAR, "") else found


class CappedPaginator(Paginator):
    """Counts no more rows than somebody pages through."""

    @cached_property
    def count(self) -> int:
        if not isinstance(self.object_list, QuerySet):
            return len(self.object_list)
        return self.object_list.order_by().values("pk")[:MAX_COUNTED].count()


class SearchableAdmin(CheckedFields, ModelAdmin):
    """The base of every admin here.

    `id_prefix`: of the rows' own public ids. `id_lookups`: by prefix, the fields that hold such an id; a bare UUID is
    looked for in all of them. `search_fields` are for text.
    """

    id_prefix = ""
    id_lookups: Mapping[str, Sequence[str]] = {}
    show_full_result_count = False
    paginator = CappedPaginator
    list_per_page = 50
    list_max_show_all = 200
    search_help_text: ClassVar[str | None] = None
    list_filter_sheet = True
    show_facets = admin.ShowFacets.NEVER  # they count whole tables

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return Results

    def get_list_display(self, request: HttpRequest) -> Sequence[Any]:
        """Numbers with their thousands apart."""
        return [readable(self.model, each) for each in super().get_list_display(request)]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """On a page to look at, too; where a number is typed it stays one."""
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        return [
            (title, {**part, "fields": [readable(self.model, each) for each in part["fields"]]})
            for title, part in found
        ]

    def get_search_fields(self, request: HttpRequest) -> Sequence[str]:
        """Not empty where ids can be found: Django shows a search box only then."""
        return super().get_search_fields(request) or (["pk"] if self.id_lookups else [])

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        wanted = parse_wanted(search_term)
        if wanted is not None:
            return queryset.filter(self.condition(wanted)), False
        if len(search_term) > MAX_TERM or "\0" in search_term:
            return queryset.none(), False
        if search_term.strip() and not self.search_fields:
            return queryset.none(), False
        found: tuple[QuerySet, bool] = super().get_search_results(request, queryset, search_term)
        return found

    def condition(self, wanted: WantedId) -> Q:
        """What a row must fulfil to have the id, or to refer to it."""
        lookups = self.id_lookups
        chosen: Iterable[Sequence[str]] = [lookups.get(wanted.prefix, ())] if wanted.prefix else lookups.values()
        found = Q(pk__in=[])
        for name in dict.fromkeys(field for fields in chosen for field in fields):
            found |= self.match(name, wanted.id)
        return found

    def match(self, name: str, value: UUID) -> Q:
        """One of `id_lookups`. Admins override it for what needs more than a comparison."""
        return Q(**{name: value})

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not _is_plain(request.GET):
            return HttpResponseRedirect(request.path)
        if not all(is_value(self.opts.pk, key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("This is no key of a row.")
        answer: HttpResponse = super().changelist_view(request, extra_context)
        return answer

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only what the list offers as a filter, or the key: any other field could be read out by asking.

        Nor what a date cannot take. A hand-made address is answered with 400.
        """
        name, *parts = lookup.split("__")
        if lookup in self._parameters(request):
            return True
        if name not in self._filters(request):
            return False
        field = next((each for each in self.opts.get_fields() if each.name == name), None)
        if parts and field is not None and field.is_relation and parts[0] in ("pk", field.target_field.name):
            parts = parts[1:]
        if set(parts) - FILTER_PARTS or ("year" in parts and not _is_year(value)):
            return False
        return bool(super().lookup_allowed(lookup, value, request))

    def _parameters(self, request: HttpRequest) -> set[str]:
        """Of the list's own kinds of filters."""
        own = [each for each in self.get_list_filter(request) if isinstance(each, type)]
        return {str(each.parameter_name) for each in own if issubclass(each, admin.SimpleListFilter)}

    def _filters(self, request: HttpRequest) -> set[str]:
        """Fields that an address of the list may filter by."""
        given = [each for each in self.get_list_filter(request) if not isinstance(each, type)]
        fields = {each if isinstance(each, str) else str(each[0]) for each in given}
        return {"pk", self.opts.pk.name, *fields, *([self.date_hierarchy] if self.date_hierarchy else [])}

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        """A public id is as good as a UUID in an address."""
        if "\0" in object_id or (isinstance(self.opts.pk, IntegerField) and not typed.is_whole(object_id)):
            return None
        wanted = parse_wanted(object_id)
        if wanted is not None and wanted.prefix and wanted.prefix == self.id_prefix:
            object_id = str(wanted.id)
        found: Model | None = super().get_object(request, object_id, from_field)
        return found

    def shown_id(self, row: Model) -> str:
        """The row's id as callers of the API know it."""
        if row._state.adding:
            return ""
        return public_id(self.id_prefix, row.pk) if self.id_prefix else str(row.pk)

    @admin.display(description="id", ordering="pk")
    def public(self, row: Model) -> str:
        """For pages."""
        return self.shown_id(row)

    @admin.display(description="id", ordering="pk")
    def brief(self, row: Model) -> str:
        """For lists."""
        return short(self.shown_id(row))
