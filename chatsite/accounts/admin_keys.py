"""API keys in the admin, and their history. Keys cannot be made here: their text is shown once, to whom they belong."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatsite.accounts import audit, keys
from chatsite.accounts.admin_history import HistoryAdmin, person_link
from chatsite.accounts.admin_limited import LimitedAdmin, OwnLimitsFilter
from chatsite.accounts.models import ApiKey, KeyEvent
from chatsite.accounts.protocol import Via
from chatsite.accounts.selectors import working
from chatsite.admin_links import id_link, joined, list_link, short_link
from chatsite.look_only import LookOnlyAdmin
from chatsite.scopes import Scope


class KeyStateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [
            ("active", "Active"),
            ("unused", "Active, never used"),
            ("replaced", "Replaced, still active"),
            ("expired", "Expired"),
            ("revoked", "Revoked"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        states = {
            "active": working(),
            "unused": working() & Q(last_used_at=None),
            "replaced": working() & Q(replaced_by__isnull=False),
            "expired": Q(revoked_at=None, expires_at__lte=timezone.now()),
            "revoked": Q(revoked_at__isnull=False),
        }
        return queryset.filter(states.get(self.value() or "", Q()))


class ScopeFilter(admin.SimpleListFilter):
    title = "scope"
    parameter_name = "scope"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(each.value, each.value) for each in Scope]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(scopes__contains=[self.value()]) if self.value() in {*Scope} else queryset


@admin.register(ApiKey)
class ApiKeyAdmin(LookOnlyAdmin, LimitedAdmin):
    list_display = [
        "name", "prefix", "user_link", "organization_link", "active", "may", "expires_at", "last_used_at",
    ]  # fmt: skip
    list_filter = [KeyStateFilter, ScopeFilter, OwnLimitsFilter]
    ordering = ["-id"]
    date_hierarchy = "created_at"
    search_fields = ["prefix", "name", "user__email"]
    search_help_text = "Search by name, beginning or user's email, or by the id of the key, its user or organization"
    id_prefix = "key"
    id_lookups = {"key": ["id", "replaced_by_id", "chain_id"], "user": ["user_id"], "org": ["organization_id"]}
    fields = [
        "public", "name", "prefix", "active", "may", "own_limits", "user_link", "organization_link", "created_at",
        "last_used_at", "expires_at", "revoked_at", "successor", "predecessor", "see",
    ]  # fmt: skip
    readonly_fields = [
        "public", "active", "may", "own_limits", "user_link", "organization_link", "successor", "predecessor", "see",
    ]  # fmt: skip
    actions = ["revoke"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("accounts.change_apikey")

    @admin.action(description="Revoke the selected keys", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        by = audit.actor_of(request, Via.ADMIN)
        for key in queryset.filter(revoked_at=None):
            keys.revoke_api_key(key, by)
            self.log_change(request, key, "Revoked.")
        self.message_user(request, "The selected keys are refused from now on.", messages.SUCCESS)

    @admin.display(description="active", boolean=True)
    def active(self, row: ApiKey) -> bool:
        return row.is_working

    @admin.display(description="scopes")
    def may(self, row: ApiKey) -> str:
        return ", ".join(row.scopes)

    @admin.display(description="replaced by")
    def successor(self, row: ApiKey) -> str:
        return id_link("accounts_apikey", "key", row.replaced_by_id)

    @admin.display(description="in place of")
    def predecessor(self, row: ApiKey) -> str:
        before = ApiKey.objects.filter(replaced_by=row).first()
        return id_link("accounts_apikey", "key", before.pk if before else None)

    @admin.display(description="see also")
    def see(self, row: ApiKey) -> str:
        query = self.shown_id(row)
        return joined(
            [
                list_link("accounts_keyevent", "History", q=query),
                list_link("inference_request", "Requests", q=query),
                list_link("quotas_ledgerentry", "Usage", q=query),
            ]
        )


@admin.register(KeyEvent)
class KeyEventAdmin(HistoryAdmin):
    people = ["owner", "actor"]
    list_display = ["created_at", "kind", "key_link", "owner_link", "actor_link", "via", "address"]
    search_help_text = "Search by client address, or by the id of a key, its owner, its organization, or who did it"
    id_lookups = {"key": ["key_id"], "user": ["owner_id", "actor_id"], "org": ["organization_id"]}
    fields = [
        "created_at", "kind", "key_link", "owner_link", "organization_link", "actor_link", "via", "address", "changes",
    ]  # fmt: skip
    readonly_fields = ["key_link", "owner_link", "organization_link", "actor_link", "changes"]

    @admin.display(description="API key")
    def key_link(self, row: KeyEvent) -> str:
        return short_link("accounts_apikey", "key", row.key_id)

    @admin.display(description="owner")
    def owner_link(self, row: Any) -> str:
        return person_link(row.owner_id, row.owner_email)

    @admin.display(description="organization")
    def organization_link(self, row: KeyEvent) -> str:
        return id_link("accounts_organization", "org", row.organization_id)
