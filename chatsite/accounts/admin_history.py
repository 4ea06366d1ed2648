"""What the histories of keys and of organizations have in common in the admin."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html_join

from chatsite.accounts import audit
from chatsite.accounts.models import KeyEvent, OrganizationEvent, User
from chatsite.admin_filters import MadeFilter
from chatsite.admin_links import NOTHING, row_link
from chatsite.look_only import LookOnlyAdmin


class HistoryAdmin(LookOnlyAdmin):
    """Rows name people and what was changed by id alone, and outlive them."""

    people = ["actor"]  # each a column `<name>_id`; their addresses are looked up with the rows
    list_filter = ["kind", "via", MadeFilter]
    ordering = ["-id"]
    sortable_by = ["created_at"]
    search_fields = ["=address"]

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        emails = {
            f"{name}_email": Subquery(User.objects.filter(pk=OuterRef(f"{name}_id")).values("email")[:1])
            for name in self.people
        }
        found: QuerySet = super().get_queryset(request).annotate(**emails)
        return found

    @admin.display(description="done by")
    def actor_link(self, row: Any) -> str:
        return person_link(row.actor_id, row.actor_email)

    @admin.display(description="what changed")
    def changes(self, row: KeyEvent | OrganizationEvent) -> str:
        return format_html_join("", "<p>{}</p>", ((line,) for line in audit.changes(row))) or NOTHING


def person_link(pk: UUID | None, email: str | None) -> str:
    """Somebody who may not be there any more, or nobody."""
    if pk is None:
        return NOTHING
    return row_link("accounts_user", pk, email).html if email else f"user_{pk} (gone)"
