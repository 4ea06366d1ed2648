"""The admin: its navigation, its front page, and the box that finds anything by id."""

from collections.abc import Iterator
from typing import Any

import structlog
from django.db.models import UUIDField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.templatetags.static import static
from django.urls import reverse
from redis.exceptions import RedisError
from unfold.sites import UnfoldAdminSite

from chatsite.admin_links import list_link
from chatsite.admin_search import MAX_TERM, SearchableAdmin, WantedId, parse_wanted
from inference import overview

log = structlog.get_logger(__name__)
# By topic: title, icon, and the model as `app.model`
NAVIGATION = {
    "People": [
        ("Users", "person", "accounts.user"),
        ("Organizations", "apartment", "accounts.organization"),
        ("Memberships", "group", "accounts.membership"),
        ("Invitations", "mail", "accounts.invitation"),
        ("History of organizations", "manage_history", "accounts.organizationevent"),
        ("API keys", "key", "accounts.apikey"),
        ("History of keys", "history", "accounts.keyevent"),
        ("Sessions", "devices", "usersessions.usersession"),
        ("Provider accounts", "badge", "socialaccount.socialaccount"),
        ("Groups", "shield_person", "auth.group"),
    ],
    "Use": [
        ("Requests", "bolt", "inference.request"),
        ("Usage ledger", "receipt_long", "quotas.ledgerentry"),
        ("Top spenders", "leaderboard", "quotas.topspender"),
        ("Usage by day", "calendar_month", "quotas.usageday"),
        ("Usage by hour", "schedule", "quotas.usagehour"),
        ("Checks of usage", "fact_check", "quotas.usagecheck"),
        ("Findings about usage", "troubleshoot", "quotas.usagefinding"),
        ("Statements", "request_quote", "billing.statement"),
        ("Refunds", "currency_exchange", "billing.refund"),
        ("Kept calls", "inventory_2", "inference.keptcall"),
        ("Readings of calls", "visibility", "inference.callreading"),
    ],
    "Conversations": [
        ("Conversations", "forum", "conversations.conversation"),
        ("Messages", "chat_bubble", "conversations.message"),
        ("Shares", "share", "conversations.share"),
        ("Record of readings", "visibility", "conversations.textaccess"),
    ],
    "Serving": [
        ("Models", "neurology", "inference.model"),
        ("Replicas", "dns", "inference.replica"),
        ("Scheduler", "tune", "inference.schedulertuning"),
    ],
    "Plans": [
        ("Plans", "sell", "quotas.plan"),
        ("Subscriptions", "card_membership", "quotas.subscription"),
        ("Budgets", "savings", "quotas.budget"),
        ("Unusual spending", "warning", "billing.spendingflag"),
        ("Alerts of budgets", "notifications", "billing.budgetalert"),
        ("Grants", "redeem", "billing.grant"),
        ("Prices", "payments", "quotas.price"),
        ("Emergency stops", "front_hand", "quotas.stop"),
        ("Keeping of texts", "save", "inference.textkeeping"),
        ("Webhooks", "webhook", "webhooks.endpoint"),
        ("Deliveries", "outbox", "webhooks.delivery"),
    ],
}


def stylesheet(_request: HttpRequest) -> str:
    return static("css/admin.css")


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: what the person may look at."""
    groups = []
    for title, entries in NAVIGATION.items():
        items = [_entry(*entry) for entry in entries if _may_view(request, entry[2])]
        if items:
            groups.append({"title": title, "items": items})
    home = {"title": "Overview", "icon": "home", "link": reverse("admin:index")}
    return [{"items": [home]}, *groups]


def _entry(title: str, icon: str, model: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}


def _may_view(request: HttpRequest, model: str) -> bool:
    app, name = model.split(".")
    return request.user.has_perm(f"{app}.view_{name}") or request.user.has_perm(f"{app}.change_{name}")


class Site(UnfoldAdminSite):
    """Who signs in here comes through the site's own door (chatsite.urls)."""

    index_title = "Overview"

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """The theme would write its colours into the page; they are in the style sheet, which the policy allows."""
        return {**super().each_context(request), "colors": None, "border_radius": None}

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = dict(extra_context or {})
        if _may_view(request, "inference.request"):
            context["overview"] = overview.load()
        if _may_view(request, "inference.replica"):
            context["serving"] = _serving()
            context["serving_unknown"] = context["serving"] is None
        answer: HttpResponse = super().index(request, context)
        return answer

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Leads to the object that has the id, or else to the list of those that refer to it; 404 without either."""
        text = request.GET.get("q", "").strip()
        wanted = parse_wanted(text)
        address = next(self._places_of(request, wanted), None) if wanted else _people_named(request, text)
        if address is not None:
            return HttpResponseRedirect(address)
        context = {**self.each_context(request), **(extra_context or {}), "title": "Find", "sought": text[:MAX_TERM]}
        return TemplateResponse(request, "admin/search.html", context, status=404 if text else 200)

    def _places_of(self, request: HttpRequest, wanted: WantedId) -> Iterator[str]:
        """Addresses, the object's own first."""
        admins = [each for each in self._registry.values() if isinstance(each, SearchableAdmin)]
        seen = [each for each in admins if each.has_view_permission(request)]
        for each in seen:
            meta = each.model._meta
            named = isinstance(meta.pk, UUIDField) and (not wanted.prefix or wanted.prefix == each.id_prefix)
            if named and each.get_queryset(request).filter(pk=wanted.id).exists():
                yield reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[wanted.id])
        for each in seen:
            if each.get_queryset(request).filter(each.condition(wanted)).exists():
                meta = each.model._meta
                sought = f"{wanted.prefix}_{wanted.id}" if wanted.prefix else str(wanted.id)
                yield list_link(f"{meta.app_label}_{meta.model_name}", "", q=sought).address


def _people_named(request: HttpRequest, text: str) -> str | None:
    """Where an email address leads."""
    is_address = "@" in text and len(text) <= MAX_TERM and "\0" not in text
    if not is_address or not _may_view(request, "accounts.user"):
        return None
    return list_link("accounts_user", "", q=text).address


def _serving() -> list[overview.Serving] | None:
    """None while Redis is away."""
    try:
        return overview.load_serving()
    except RedisError as error:
        log.warning("state of replicas not known", error=str(error))
        return None
