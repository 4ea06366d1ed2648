"""Rollups, top spenders and what the nightly check has found, in the admin; to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from chatsite.accounts.admin_people import OfPeopleAdmin
from chatsite.accounts.models import ApiKey, Organization, User
from chatsite.admin_figures import figure
from chatsite.admin_links import Link, row_link, short_link
from chatsite.ids import public_id
from chatsite.look_only import LookOnlyAdmin
from quotas.admin_filters import FoundFilter, ModelFilter, UsageDayFilter
from quotas.charts import share
from quotas.models import TopSpender, UsageCheck, UsageDay, UsageFinding, UsageHour, UsageMark
from quotas.money import shown
from quotas.periods import today
from quotas.spans import Span, last_days, last_month, this_month

MOST: Final = 100  # spenders
RANGES: Final = {
    "month": ("This month", this_month),
    "last-month": ("Last month", last_month),
    "7": ("7 days", lambda day: last_days(7, day)),
    "30": ("30 days", lambda day: last_days(30, day)),
    "90": ("90 days", lambda day: last_days(90, day)),
}
KINDS: Final = {
    "organization": ("Organizations", "organization_id", "accounts_organization", "org"),
    "user": ("Users", "user_id", "accounts_user", "user"),
    "key": ("API keys", "api_key_id", "accounts_apikey", "key"),
    "model": ("Models", "model", "", ""),
}


class RolledAdmin(OfPeopleAdmin):
    """Of both kinds of rollups."""

    list_filter: Sequence[Any] = [ModelFilter]
    ordering = ["-id"]
    sortable_by: Sequence[str] = []
    search_help_text = "Search by the id of an organization, user or API key, or by email"
    id_lookups = {"org": ["organization_id"], "user": ["user_id"], "key": ["api_key_id"]}
    readonly_fields = ["organization_link", "user_link", "key_link", "money"]

    @admin.display(description="tokens in / cached / out")
    def tokens(self, row: Any) -> str:
        return f"{row.input:,} / {row.cached:,} / {row.output:,}"

    @admin.display(description=f"cost in {settings.CURRENCY}")
    def money(self, row: Any) -> str:
        return figure(row.cost)


_USE: Final = ["requests", "tokens", "money"]
_FIELDS: Final = [
    "organization_link",
    "user_link",
    "key_link",
    "model",
    "requests",
    "input",
    "cached",
    "output",
    "money",
]


@admin.register(UsageDay)
class UsageDayAdmin(RolledAdmin):
    list_display = ["day", "organization_link", "user_link", "model", *_USE]
    list_filter = [UsageDayFilter, ModelFilter]
    ordering = ["-day", "-id"]
    fields = ["day", *_FIELDS]


@admin.register(UsageHour)
class UsageHourAdmin(RolledAdmin):
    list_display = ["hour", "organization_link", "user_link", "model", *_USE]
    fields = ["hour", *_FIELDS]


@dataclass(frozen=True)
class Spender:
    link: Link | str
    requests: int
    tokens: int
    cost: str
    percent: float


@dataclass(frozen=True)
class Choice:
    label: str
    address: str
    chosen: bool


@admin.register(TopSpender)
class TopSpenderAdmin(LookOnlyAdmin):
    """One page: who has cost most in a period. From the rollups, which are a minute old at most."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        return None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        period, kind = request.GET.get("period", "month"), request.GET.get("by", "organization")
        if period not in RANGES or kind not in KINDS or request.GET.keys() - {"period", "by"}:
            raise BadRequest("There is no such period or kind of spender.")
        mark = UsageMark.objects.first()
        context = {
            **self.admin_site.each_context(request),
            "title": "Top spenders",
            "opts": self.opts,
            "spenders": spenders(RANGES[period][1](today()), kind),
            "heading": KINDS[kind][0],
            "periods": [_choice(words, name == period, name, kind) for name, (words, _) in RANGES.items()],
            "kinds": [_choice(words, name == kind, period, name) for name, (words, *_) in KINDS.items()],
            "currency": settings.CURRENCY,
            "most": MOST,
            "as_of": mark.at if mark else None,
        }
        return TemplateResponse(request, "admin/quotas/spenders.html", context)


def _choice(label: str, chosen: bool, period: str, kind: str) -> Choice:
    return Choice(label, f"?period={period}&by={kind}", chosen)


def spenders(span: Span, kind: str) -> list[Spender]:
    """Those of the period that cost most, the dearest first."""
    _, field, page, prefix = KINDS[kind]
    rows = UsageDay.objects.filter(day__gte=span.start.date(), day__lt=span.end.date()).values(field)
    sums = rows.annotate(costs=Sum("cost"), calls=Sum("requests"), tokens=Sum("input") + Sum("output"))
    found = list(sums.order_by("-costs", "-tokens")[:MOST])
    labels = _labels(kind, [row[field] for row in found if row[field]])
    most = found[0]["costs"] if found else Decimal(0)
    return [
        Spender(
            _link(page, prefix, row[field], labels),
            row["calls"],
            row["tokens"],
            shown(row["costs"], settings.CURRENCY),
            share(row["costs"], most),
        )
        for row in found
    ]


def _labels(kind: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    if kind == "organization":
        return dict(Organization.objects.filter(pk__in=ids).values_list("pk", "name"))
    if kind == "user":
        return dict(User.objects.filter(pk__in=ids).values_list("pk", "email"))
    if kind == "key":
        keys = ApiKey.objects.filter(pk__in=ids).select_related("user")
        return {key.pk: f"{key.name} ({key.user.email})" for key in keys}
    return {}


def _link(page: str, prefix: str, id: Any, labels: dict[UUID, str]) -> Link | str:
    if id is None:
        return "without a key"
    if not page:
        return str(id)
    return row_link(page, id, labels[id]) if id in labels else f"{public_id(prefix, id)} (gone)"


@admin.register(UsageCheck)
class UsageCheckAdmin(LookOnlyAdmin):
    list_display = ["began_at", "ended", "since", "organizations", "counters", "findings"]
    ordering = ["-id"]
    fields = ["began_at", "ended_at", "since", "organizations", "counters", "findings"]

    @admin.display(description="ended")
    def ended(self, row: UsageCheck) -> str:
        return f"{row.ended_at:%Y-%m-%d %H:%M:%S}" if row.ended_at else "no: it runs, or was broken off"


@admin.register(UsageFinding)
class UsageFindingAdmin(LookOnlyAdmin):
    """The last run stands above the list."""

    list_display = ["found_at", "what", "organization_link", "day", "subject", "unit", "right", "wrong"]
    list_filter = ["what", "unit", FoundFilter]
    list_before_template = "admin/quotas/last_check.html"
    ordering = ["-id"]
    search_help_text = "Search by the id of an organization"
    id_lookups = {"org": ["organization_id"]}
    fields = ["found_at", "what", "organization_link", "day", "subject", "unit", "right", "wrong", "of_check"]
    readonly_fields = ["organization_link", "right", "wrong"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[UsageFinding]:
        found: QuerySet[UsageFinding] = super().get_queryset(request).select_related("of_check")
        return found

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        last = UsageCheck.objects.order_by("-id").first()
        return super().changelist_view(request, {**(extra_context or {}), "last_check": last})

    @admin.display(description="organization")
    def organization_link(self, row: UsageFinding) -> str:
        return short_link("accounts_organization", "org", row.organization_id)

    @admin.display(description="in the ledger")
    def right(self, row: UsageFinding) -> str:
        return figure(row.in_ledger)

    @admin.display(description="found")
    def wrong(self, row: UsageFinding) -> str:
        return figure(row.found)
