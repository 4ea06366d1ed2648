"""Lists of what people have used: tables that name them by id alone, and that grow for ever."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest

from chatsite.accounts.models import Organization, User
from chatsite.accounts.selectors import organizations_behind
from chatsite.admin_links import NOTHING, id_link, row_link
from chatsite.admin_search import MAX_TERM
from chatsite.look_only import LookOnlyAdmin


class OfPeopleAdmin(LookOnlyAdmin):
    """Rows with `user_id`, `organization_id` and `api_key_id`, of which only the organization has an index."""

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        email = User.objects.filter(pk=OuterRef("user_id")).values("email")[:1]
        name = Organization.objects.filter(pk=OuterRef("organization_id")).values("name")[:1]
        found: QuerySet = (
            super().get_queryset(request).annotate(email=Subquery(email), organization_name=Subquery(name))
        )
        return found

    def match(self, name: str, value: UUID) -> Q:
        if name in ("user_id", "api_key_id"):
            return Q(**{name: value}, organization_id__in=organizations_behind(value))
        return super().match(name, value)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        """An email address finds what its user has used."""
        if "@" not in search_term or "\0" in search_term or len(search_term) > MAX_TERM:
            return super().get_search_results(request, queryset, search_term)
        person = User.objects.filter(email__iexact=search_term.strip()).first()
        return (queryset.filter(self.match("user_id", person.pk)) if person else queryset.none()), False

    @admin.display(description="user")
    def user_link(self, row: Any) -> str:
        return row_link("accounts_user", row.user_id, row.email).html if row.email else f"user_{row.user_id} (gone)"

    @admin.display(description="organization")
    def organization_link(self, row: Any) -> str:
        if not row.organization_name:
            return f"org_{row.organization_id} (gone)"
        return row_link("accounts_organization", row.organization_id, row.organization_name).html

    @admin.display(description="API key")
    def key_link(self, row: Any) -> str:
        return id_link("accounts_apikey", "key", row.api_key_id) if row.api_key_id else NOTHING
