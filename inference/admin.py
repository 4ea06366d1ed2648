"""Models, replicas and requests, to look at. What models.toml says is changed there."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from redis.exceptions import RedisError

from chatsite.accounts.admin_people import OfPeopleAdmin
from chatsite.admin_figures import figure
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import NOTHING, Link, joined, list_link, row_link
from chatsite.look_only import LookOnlyAdmin
from inference import admin_owners, overview, timeline
from inference.admin_kept import CallReadingAdmin, KeptCallAdmin, TextKeepingAdmin
from inference.admin_tuning import SchedulerTuningAdmin
from inference.explanation import explain
from inference.models import Model, Replica, Request
from quotas.selectors import ledger_of

__all__ = [
    "CallReadingAdmin",
    "KeptCallAdmin",
    "SchedulerTuningAdmin",
    "TextKeepingAdmin",
]  # registered by being imported

log = structlog.get_logger(__name__)
STATES = {"ready": "good", "loading": "busy", "down": "bad", "unknown": "quiet"}
STATUSES = {"succeeded": "good", "running": "busy", "queued": "busy", "cancelled": "quiet"}


def money(amount: Decimal) -> str:
    return f"{figure(amount)} {settings.CURRENCY}"


def badge(text: str, kind: str) -> str:
    return format_html('<span class="badge badge-{}">{}</span>', kind, text)


@admin.register(Model)
class ModelAdmin(LookOnlyAdmin):
    list_display = [
        "name", "title", "context_length", "allowed", "replica_count", "input_price", "output_price", "enabled",
    ]  # fmt: skip
    list_filter = ["enabled"]
    search_fields = ["name", "title"]
    search_help_text = "Search by name, title, or the id of a replica"
    id_lookups = {"rep": ["replicas__id"]}
    fields = [
        "name", "title", "description", "enabled", "position", "context_length", "allowed", "fallback", "path",
        "engine_model", "system_prompt", "reasoning_open", "reasoning_close", "price_input", "price_cached",
        "price_output", "see",
    ]  # fmt: skip
    readonly_fields = ["allowed", "see"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        enabled = Count("replicas", filter=Q(replicas__enabled=True))
        found: QuerySet[Model] = super().get_queryset(request).annotate(replica_count=enabled)
        return found

    @admin.display(description="plans")
    def allowed(self, row: Model) -> str:
        return ", ".join(row.tiers) or NOTHING

    @admin.display(description="replicas")
    def replica_count(self, row: Any) -> int:
        return int(row.replica_count)

    @admin.display(description="input price", ordering="price_input")
    def input_price(self, row: Model) -> str:
        return figure(row.price_input)

    @admin.display(description="output price", ordering="price_output")
    def output_price(self, row: Model) -> str:
        return figure(row.price_output)

    @admin.display(description="see also")
    def see(self, row: Model) -> str:
        query = {"model__name__exact": row.name}
        return joined(
            [list_link("inference_replica", "Replicas", **query), list_link("inference_request", "Requests", **query)]
        )


@admin.register(Replica)
class ReplicaAdmin(LookOnlyAdmin):
    list_display = ["address", "model", "state", "managed", "enabled"]
    list_filter = ["model", "enabled", "managed"]
    list_select_related = ["model"]
    search_fields = ["url", "model__name"]
    search_help_text = "Search by id, address or model"
    id_prefix = "rep"
    id_lookups = {"rep": ["id"]}
    fields = ["public", "model", "url", "state", "managed", "enabled", "see"]
    readonly_fields = ["public", "state", "see"]

    @admin.display(description="address", ordering="url")
    def address(self, row: Replica) -> str:
        return row.url

    @admin.display(description="state now")
    def state(self, row: Replica) -> str:
        known = getattr(row, "state_now", None) or _states([row])[row.id]
        return badge(known, STATES[known])

    @admin.display(description="see also")
    def see(self, row: Replica) -> str:
        return joined([list_link("inference_request", "Requests it served", q=self.shown_id(row))])

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """One round trip to Redis for the whole list."""
        answer = super().changelist_view(request, extra_context)
        results = getattr(answer, "context_data", {}).get("cl")
        if results is not None:
            states = _states(list(results.result_list))
            for row in results.result_list:
                row.state_now = states[row.id]
        return answer


def _states(replicas: list[Replica]) -> dict[UUID, str]:
    try:
        return overview.states_of(replicas)
    except RedisError as error:
        log.warning("state of replicas not known", error=str(error))
        return {row.id: overview.UNKNOWN for row in replicas}


@admin.register(Request)
class RequestAdmin(OfPeopleAdmin):
    list_display = ["brief", "created_at", "status_badge", "lane", "model", "user_link", "tokens", "waited"]
    list_filter = ["status", "lane", "model", MadeFilter]
    list_select_related = ["model"]
    ordering = ["-id"]
    sortable_by = ["brief"]
    search_help_text = (
        "Search by an id: of the request, its message, conversation, user, organization, key or replica; "
        "or by an email address"
    )
    id_prefix = "req"
    id_lookups = {
        "req": ["id"],
        "msg": ["owner_id"],
        "call": ["owner_id"],
        "conv": ["container"],
        "user": ["user_id"],
        "org": ["organization_id"],
        "key": ["api_key_id"],
        "rep": ["replica_id"],
    }
    fieldsets = [
        ("What", {"fields": ["public", "status_badge", "error", "finish_reason", "model"]}),
        ("Where", {"fields": ["lane", "replica_link", "attempt"]}),
        ("Whose", {"fields": ["user_link", "organization_link", "key_link", "owner", "ledger"]}),
        ("Use", {"fields": ["prompt_tokens", "cached_tokens", "output_tokens", "base_tokens", "cost"]}),
        ("How", {"fields": ["sampled", "deadline"]}),
    ]
    readonly_fields = [
        "public", "status_badge", "error", "replica_link", "user_link", "organization_link", "key_link", "owner",
        "ledger", "cost", "sampled",
    ]  # fmt: skip
    change_form_outer_before_template = "admin/inference/request/before.html"

    def match(self, name: str, value: UUID) -> Q:
        if name == "container":
            return Q(owner_id__in=admin_owners.owners_in(value))
        return super().match(name, value)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        context = dict(extra_context or {})
        if isinstance(row, Request):
            context["timeline"] = timeline.build(row, timezone.now(), row.output_tokens)
            actual = (row.first_token_at - row.created_at).total_seconds() if row.first_token_at else None
            urls = dict(Replica.objects.filter(model=row.model_id).values_list("id", "url"))
            context["explanation"] = explain(row.decision, actual, {str(id): url for id, url in urls.items()})
        answer: HttpResponse = super().change_view(request, object_id, form_url, context)
        return answer

    # Columns

    @admin.display(description="status")
    def status_badge(self, row: Request) -> str:
        return badge(row.get_status_display().lower(), STATUSES.get(row.status, "bad"))

    @admin.display(description="tokens in / out")
    def tokens(self, row: Request) -> str:
        return f"{row.prompt_tokens:,} / {row.output_tokens:,}"

    @admin.display(description="first token after")
    def waited(self, row: Request) -> str:
        return timeline.duration(row.first_token_at - row.created_at) if row.first_token_at else NOTHING

    # The page

    @admin.display(description="error")
    def error(self, row: Request) -> str:
        if not row.error_code and not row.error_message:
            return NOTHING
        return format_html("<code>{}</code> {}", row.error_code, row.error_message)

    @admin.display(description="replica")
    def replica_link(self, row: Request) -> str:
        return row_link("inference_replica", row.replica_id, row.replica.url).html if row.replica else NOTHING

    @admin.display(description="belongs to")
    def owner(self, row: Request) -> str:
        if row.owner_kind == "completion":
            return "a call of the API, of which no text is kept"
        links: list[Link] = admin_owners.links(row.owner_kind, row.owner_id)
        return joined(links) if links else f"{row.owner_kind} {row.owner_id}, which is gone"

    @admin.display(description="ledger")
    def ledger(self, row: Request) -> str:
        return list_link("quotas_ledgerentry", "Rows of this request", q=self.shown_id(row)).html

    @admin.display(description="sampling")
    def sampled(self, row: Request) -> str:
        given = ((name, value) for name, value in row.sampling.items() if value not in (None, "", []))
        pairs = ((name.replace("_", " "), value) for name, value in given)
        return format_html_join("", '<span class="pair">{} <b>{}</b></span> ', pairs) or NOTHING

    @admin.display(description="cost")
    def cost(self, row: Request) -> str:
        costs = [entry.cost for entry in ledger_of(row.id)]
        return money(sum(costs, Decimal(0))) if costs else "not yet settled"
