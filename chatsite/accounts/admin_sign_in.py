"""What django-allauth keeps, as far as an operator needs it: where people are signed in, and through which provider.

Its other tables are not here: addresses belong to the page of a user, providers to the settings, and nobody should
look at other people's tokens.
"""

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from chatsite.accounts import sessions
from chatsite.accounts.devices import device_name
from chatsite.admin_links import row_link
from chatsite.look_only import LookOnlyAdmin

for _model in (EmailAddress, SocialAccount, SocialApp, SocialToken, UserSession):
    admin.site.unregister(_model)


@admin.register(UserSession)
class SessionAdmin(LookOnlyAdmin):
    """Without the session's key, which would let whoever has it in."""

    list_display = ["user_link", "device", "ip", "created_at", "last_seen_at"]
    list_display_links = ["device"]
    list_select_related = ["user"]
    ordering = ["-last_seen_at"]
    date_hierarchy = "last_seen_at"
    search_fields = ["user__email", "=ip"]
    search_help_text = "Search by email, by address, or by the id of a user"
    id_lookups = {"user": ["user_id"]}
    fields = ["user_link", "device", "user_agent", "ip", "created_at", "last_seen_at"]
    readonly_fields = ["user_link", "device"]
    actions = ["end"]

    def has_end_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("usersessions.delete_usersession")

    @admin.action(description="End the selected sessions", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[UserSession]) -> None:
        mine = request.session.session_key or ""
        ended = sum(sessions.end(row.user, row.pk, mine) for row in queryset.select_related("user"))
        self.message_user(request, f"Ended: {ended}. Your own session goes on until you log out.", messages.SUCCESS)

    @admin.display(description="user")
    def user_link(self, row: UserSession) -> str:
        return row_link("accounts_user", row.user_id, row.user.email).html

    @admin.display(description="device")
    def device(self, row: UserSession) -> str:
        return device_name(row.user_agent)


@admin.register(SocialAccount)
class ProviderAccountAdmin(LookOnlyAdmin):
    list_display = ["uid", "user_link", "provider", "date_joined", "last_login"]
    list_filter = ["provider"]
    list_select_related = ["user"]
    search_fields = ["=uid", "user__email"]
    search_help_text = "Search by the provider's name for somebody, by email, or by the id of a user"
    id_lookups = {"user": ["user_id"]}
    fields = ["user_link", "provider", "uid", "date_joined", "last_login"]
    readonly_fields = ["user_link"]

    @admin.display(description="user")
    def user_link(self, row: SocialAccount) -> str:
        return row_link("accounts_user", row.user_id, row.user.email).html
