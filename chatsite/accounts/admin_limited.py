"""What memberships and API keys have in common in the admin: a user, an organization, and limits of their own."""

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from chatsite.accounts.models import LIMITS, ApiKey, Membership
from chatsite.accounts.templatetags.account_page import limits
from chatsite.admin_links import NOTHING, row_link
from chatsite.admin_search import SearchableAdmin


class OwnLimitsFilter(admin.SimpleListFilter):
    title = "own limits"
    parameter_name = "limits"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("yes", "Yes"), ("no", "No")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        none = Q(**dict.fromkeys(LIMITS))
        return queryset.filter({"yes": ~none, "no": none}.get(self.value() or "", Q()))


class LimitedAdmin(SearchableAdmin):
    """Links to both, and the limits in words."""

    list_select_related = ["user", "organization"]

    @admin.display(description="user")
    def user_link(self, row: Membership | ApiKey) -> str:
        return row_link("accounts_user", row.user_id, row.user.email).html

    @admin.display(description="organization")
    def organization_link(self, row: Membership | ApiKey) -> str:
        return row_link("accounts_organization", row.organization_id, row.organization.name).html

    @admin.display(description="own limits")
    def own_limits(self, row: Membership | ApiKey) -> str:
        return limits(row) or NOTHING
