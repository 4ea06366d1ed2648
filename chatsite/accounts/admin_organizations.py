"""Organizations in the admin: who is in them, who was invited, and what was done.

Members are changed by the same rules as on the pages of an organization, and it is written into its history.
"""

from typing import Any

from django.contrib import admin, messages
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Field, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from unfold.admin import TabularInline

from chatsite.accounts import audit, history, members
from chatsite.accounts.admin_history import HistoryAdmin, person_link
from chatsite.accounts.admin_limited import LimitedAdmin, OwnLimitsFilter
from chatsite.accounts.limit_forms import LEAST_COST, MAX_COST, MAX_LIMIT, MAX_MONTHLY_TOKENS
from chatsite.accounts.models import LIMITS, Invitation, Membership, Organization, OrganizationEvent
from chatsite.accounts.protocol import Via
from chatsite.accounts.roles import Role
from chatsite.admin_links import NOTHING, id_link, joined, list_link, row_link
from chatsite.admin_search import SearchableAdmin
from chatsite.errors import AppError
from chatsite.look_only import LookOnlyAdmin

ADD_PLAN = "admin:quotas_subscription_add"


class MembershipInline(TabularInline):
    """To look at; each has a page of its own, where it is changed."""

    model = Membership
    extra = 0
    fields = ["user", "organization", "role", "created_at"]
    readonly_fields = fields
    show_change_link = True

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


class NoPlanFilter(admin.SimpleListFilter):
    title = "plan"
    parameter_name = "plan"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("none", "None yet"), ("own", "Given one"), ("default", "The default")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        states = {
            "none": Q(subscription=None, awaits_plan=True),
            "own": Q(subscription__isnull=False),
            "default": Q(subscription=None, awaits_plan=False),
        }
        return queryset.filter(states.get(self.value() or "", Q()))


@admin.register(Organization)
class OrganizationAdmin(SearchableAdmin):
    list_display = ["name", "brief", "personal", "plan", "created_at"]
    list_filter = [("personal_of", admin.EmptyFieldListFilter), NoPlanFilter]
    list_select_related = ["subscription__plan"]
    ordering = ["-id"]
    date_hierarchy = "created_at"
    search_fields = ["name", "memberships__user__email"]
    search_help_text = "Search by name, by a member's email, or by the id of the organization, a member or an API key"
    id_prefix = "org"
    id_lookups = {"org": ["id"], "user": ["memberships__user_id"], "key": ["api_keys__id"]}
    fields = ["public", "name", "personal", "plan", "created_at", "see"]
    readonly_fields = ["public", "personal", "plan", "created_at", "see"]
    inlines = [MembershipInline]

    def get_inlines(self, request: HttpRequest, obj: Organization | None) -> list[Any]:
        return [MembershipInline] if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """What its members wrote would go with it."""
        return False

    def save_model(self, request: HttpRequest, obj: Organization, form: Any, change: bool) -> None:
        before = form.initial.get("name", "")
        super().save_model(request, obj, form, change)
        if "name" in form.changed_data:
            kind = OrganizationEvent.Kind.RENAMED if change else OrganizationEvent.Kind.CREATED
            history.record(obj.pk, kind, audit.actor_of(request, Via.ADMIN), details={"name": (before, obj.name)})

    @admin.display(description="somebody's own", boolean=True)
    def personal(self, row: Organization) -> bool:
        return row.is_personal

    @admin.display(description="plan")
    def plan(self, row: Any) -> str:
        subscription = getattr(row, "subscription", None)
        if subscription:
            return row_link("quotas_subscription", row.pk, subscription.plan.name).html
        if not row.awaits_plan:
            return "the default"
        return format_html('none yet: <a href="{}?organization={}">give it one</a>', reverse(ADD_PLAN), row.pk)

    @admin.display(description="see also")
    def see(self, row: Organization) -> str:
        query = self.shown_id(row)
        return joined(
            [
                list_link("accounts_membership", "Members", q=query),
                list_link("accounts_invitation", "Invitations", q=query),
                list_link("accounts_organizationevent", "History", q=query),
                list_link("accounts_user", "Users", q=query),
                list_link("accounts_apikey", "API keys", q=query),
                list_link("inference_request", "Requests", q=query),
                list_link("conversations_conversation", "Conversations", q=query),
                list_link("quotas_ledgerentry", "Usage", q=query),
            ]
        )


@admin.register(Membership)
class MembershipAdmin(LimitedAdmin):
    list_display = ["__str__", "user_link", "organization_link", "role", "own_limits", "created_at"]
    list_filter = ["role", OwnLimitsFilter]
    ordering = ["-id"]
    search_fields = ["user__email", "organization__name"]
    search_help_text = "Search by email, by organization, or by the id of either"
    id_lookups = {"user": ["user_id"], "org": ["organization_id"]}
    autocomplete_fields = ["user", "organization"]
    fields = ["user", "organization", "role", *LIMITS, "created_at"]
    readonly_fields = ["created_at"]
    actions = None  # each is removed on its own page, by the rules

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> list[str]:
        return ["user", "organization", "created_at"] if obj else ["created_at"]

    def formfield_for_dbfield(self, db_field: Field, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None and db_field.name in LIMITS:
            least, most = _bounds(db_field.name)
            field.validators += [
                MinValueValidator(least, f"At least {least}, or nothing."),
                MaxValueValidator(most, f"At most {most:,}."),
            ]
        return field

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        """Raises AppError, which `changeform_view` says."""
        by = audit.actor_of(request, Via.ADMIN)
        if not change:
            obj.pk = members.add(obj.organization_id, obj.user, Role(obj.role), by).pk
        wanted = {name: getattr(obj, name) for name in LIMITS}
        members.change(obj.organization_id, obj.user_id, Role(obj.role), wanted, by)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        """Raises AppError, which `delete_view` says."""
        members.remove(obj.organization_id, obj.user_id, audit.actor_of(request, Via.ADMIN))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            answer: HttpResponse = super().changeform_view(request, *args, **kwargs)
        except AppError as error:
            return self._refused(request, error)
        return answer

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            answer: HttpResponse = super().delete_view(request, *args, **kwargs)
        except AppError as error:
            return self._refused(request, error)
        return answer

    def _refused(self, request: HttpRequest, error: AppError) -> HttpResponse:
        self.message_user(request, error.message, messages.ERROR)
        return redirect(request.path)


def _bounds(name: str) -> tuple[Any, Any]:
    if name == "monthly_cost":
        return LEAST_COST, MAX_COST
    return 1, MAX_MONTHLY_TOKENS if name == "monthly_tokens" else MAX_LIMIT


class InvitationStateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(each, each.capitalize()) for each in ("pending", "accepted", "withdrawn", "expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        now, waiting = timezone.now(), Q(accepted_at=None, withdrawn_at=None)
        states = {
            "pending": waiting & Q(expires_at__gt=now),
            "accepted": Q(accepted_at__isnull=False),
            "withdrawn": Q(withdrawn_at__isnull=False),
            "expired": waiting & Q(expires_at__lte=now),
        }
        return queryset.filter(states.get(self.value() or "", Q()))


@admin.register(Invitation)
class InvitationAdmin(LookOnlyAdmin):
    """Without the hash of the link's token."""

    list_display = ["email", "organization_link", "role", "state", "inviter_link", "sent_at", "expires_at"]
    list_filter = [InvitationStateFilter, "role"]
    list_select_related = ["organization", "invited_by"]
    ordering = ["-id"]
    date_hierarchy = "created_at"
    search_fields = ["email", "organization__name"]
    search_help_text = "Search by email, by organization, or by the id of the invitation, organization or a user"
    id_prefix = "inv"
    id_lookups = {"inv": ["id"], "org": ["organization_id"], "user": ["invited_by_id", "signed_up_id"]}
    fields = [
        "public", "email", "organization_link", "role", "state", "inviter_link", "created_at", "sent_at", "expires_at",
        "accepted_at", "withdrawn_at",
    ]  # fmt: skip
    readonly_fields = ["public", "organization_link", "state", "inviter_link"]

    @admin.display(description="state")
    def state(self, row: Invitation) -> str:
        if row.accepted_at:
            return "accepted"
        if row.withdrawn_at:
            return "withdrawn"
        return "expired" if row.is_expired else "pending"

    @admin.display(description="organization")
    def organization_link(self, row: Invitation) -> str:
        return row_link("accounts_organization", row.organization_id, row.organization.name).html

    @admin.display(description="invited by")
    def inviter_link(self, row: Invitation) -> str:
        inviter = row.invited_by
        return row_link("accounts_user", inviter.pk, inviter.email).html if inviter else NOTHING


@admin.register(OrganizationEvent)
class OrganizationEventAdmin(HistoryAdmin):
    people = ["member", "actor"]
    list_display = ["created_at", "kind", "organization_link", "member_link", "actor_link", "via", "address"]
    search_help_text = "Search by client address, or by the id of an organization, a member, who did it, an invitation"
    id_lookups = {"org": ["organization_id"], "user": ["member_id", "actor_id"], "inv": ["invitation_id"]}
    fields = [
        "created_at", "kind", "organization_link", "member_link", "invitation_link", "actor_link", "via", "address",
        "changes",
    ]  # fmt: skip
    readonly_fields = ["organization_link", "member_link", "invitation_link", "actor_link", "changes"]

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        name = Organization.objects.filter(pk=OuterRef("organization_id")).values("name")[:1]
        found: QuerySet = super().get_queryset(request).annotate(organization_name=Subquery(name))
        return found

    @admin.display(description="organization")
    def organization_link(self, row: Any) -> str:
        if not row.organization_name:
            return f"org_{row.organization_id} (gone)"
        return row_link("accounts_organization", row.organization_id, row.organization_name).html

    @admin.display(description="member")
    def member_link(self, row: Any) -> str:
        return person_link(row.member_id, row.member_email)

    @admin.display(description="invitation")
    def invitation_link(self, row: OrganizationEvent) -> str:
        return id_link("accounts_invitation", "inv", row.invitation_id)
