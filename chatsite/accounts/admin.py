"""Accounts in the admin. Keys cannot be made here: their text is shown once, to whom they belong."""

from http import HTTPStatus
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as BaseGroupAdmin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from chatsite.accounts import services, sessions
from chatsite.accounts.admin_keys import ApiKeyAdmin, KeyEventAdmin
from chatsite.accounts.admin_organizations import (
    InvitationAdmin,
    MembershipAdmin,
    MembershipInline,
    OrganizationAdmin,
    OrganizationEventAdmin,
)
from chatsite.accounts.admin_sign_in import ProviderAccountAdmin, SessionAdmin
from chatsite.accounts.models import User
from chatsite.admin_links import joined, list_link
from chatsite.admin_search import SearchableAdmin

# Registered by being imported
__all__ = [
    "ApiKeyAdmin",
    "InvitationAdmin",
    "KeyEventAdmin",
    "MembershipAdmin",
    "OrganizationAdmin",
    "OrganizationEventAdmin",
    "ProviderAccountAdmin",
    "SessionAdmin",
]

admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(BaseGroupAdmin, SearchableAdmin):  # type: ignore[misc]
    """Rights that several of the staff have. For superusers alone: whoever edits these can do anything."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return _is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


class VerifiedFilter(admin.SimpleListFilter):
    title = "email verified"
    parameter_name = "verified"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("yes", "Yes"), ("no", "No")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        return queryset.filter(is_verified=self.value() == "yes") if self.value() in ("yes", "no") else queryset


@admin.register(User)
class AccountAdmin(UserAdmin, SearchableAdmin):  # type: ignore[misc]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["email", "name", "verified", "is_active", "is_staff", "created_at", "last_login"]
    list_filter = ["is_active", VerifiedFilter, "is_staff", "is_superuser"]
    search_fields = ["email", "name"]
    search_help_text = "Search by email or name, or by the id of the user, an organization or an API key"
    ordering = ["-id"]
    date_hierarchy = "created_at"
    id_prefix = "user"
    id_lookups = {"user": ["id"], "org": ["memberships__organization_id"], "key": ["api_keys__id"]}
    filter_horizontal = []
    readonly_fields = ["public", "verified", "created_at", "last_login", "disabled_at", "see"]
    fieldsets = [
        (None, {"fields": ["public", "email", "verified", "name", "password", "see"]}),
        ("Rights", {"fields": ["is_active", "is_staff", "is_superuser", "groups", "user_permissions"]}),
        ("Dates", {"fields": ["created_at", "last_login", "disabled_at"]}),
    ]
    add_fieldsets = [
        (None, {"classes": ["wide"], "fields": ["email", "name", "usable_password", "password1", "password2"]})
    ]
    inlines = [MembershipInline]
    actions = ["activate", "deactivate"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        verified = EmailAddress.objects.filter(user=OuterRef("pk"), email=OuterRef("email"), verified=True)
        found: QuerySet[User] = super().get_queryset(request).annotate(is_verified=Exists(verified))
        return found

    def get_inlines(self, request: HttpRequest, obj: User | None) -> list[Any]:
        return [MembershipInline] if obj else []  # a new user's organization is made on saving

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        """Only a superuser gives rights; nobody takes their own way in from themselves."""
        fields = list(super().get_readonly_fields(request, obj))
        if not _is_superuser(request):
            fields += ["is_staff", "is_superuser", "groups", "user_permissions"]
        if obj is not None and obj.pk == request.user.pk:
            fields += ["is_active"]
        return fields

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Whoever changes an account, its password above all, can be that user: staff are for superusers alone."""
        others = obj is not None and (obj.is_staff or obj.is_superuser) and obj.pk != request.user.pk
        if others and not _is_superuser(request):
            return False
        return bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Users are deactivated: deleting one would take their conversations along."""
        return False

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        obj.email = obj.email.lower()
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data:
            (services.activate_user if obj.is_active else services.deactivate_user)(obj)

    def save_related(self, request: Any, form: Any, formsets: Any, change: Any) -> None:
        super().save_related(request, form, formsets, change)
        if not change or "email" in form.changed_data:
            services.settle_user(form.instance)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Ends the user's sessions. One's own password is changed where the old one is asked for."""
        user = self.get_object(request, id)
        if user is not None and user.pk == request.user.pk:
            return redirect("account_change_password")
        answer: HttpResponse = super().user_change_password(request, id, form_url)
        if request.method == "POST" and answer.status_code == HTTPStatus.FOUND and isinstance(user, User):
            sessions.end_all(user)
        return answer

    # Actions

    @admin.action(description="Activate", permissions=["change"])
    def activate(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in self._allowed(request, queryset.filter(is_active=False)):
            services.activate_user(user)
            self.log_change(request, user, "Activated.")
        self.message_user(request, "The selected users can sign in.", messages.SUCCESS)

    @admin.action(description="Deactivate and sign out", permissions=["change"])
    def deactivate(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in self._allowed(request, queryset.filter(is_active=True).exclude(pk=str(request.user.pk))):
            services.deactivate_user(user)
            self.log_change(request, user, "Deactivated.")
        self.message_user(request, "The selected users are signed out and cannot sign in.", messages.SUCCESS)

    def _allowed(self, request: HttpRequest, queryset: QuerySet[User]) -> list[User]:
        return [user for user in queryset if self.has_change_permission(request, user)]

    # Columns

    @admin.display(description="email verified", boolean=True)
    def verified(self, row: Any) -> bool:
        return bool(getattr(row, "is_verified", False))

    @admin.display(description="see also")
    def see(self, row: User) -> str:
        query = self.shown_id(row)
        return joined(
            [
                list_link("accounts_organization", "Organizations", q=query),
                list_link("accounts_apikey", "API keys", q=query),
                list_link("usersessions_usersession", "Sessions", q=query),
                list_link("inference_request", "Requests", q=query),
                list_link("conversations_conversation", "Conversations", q=query),
                list_link("quotas_ledgerentry", "Usage", q=query),
            ]
        )
