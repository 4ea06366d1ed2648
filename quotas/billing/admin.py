"""Money in the admin: statements, grants, alerts; refunds are in `admin_refunds`."""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminTextareaWidget

from chatsite.accounts.models import Organization, User
from chatsite.admin_links import NOTHING, Link, id_link, joined, row_link, short_link
from chatsite.admin_search import SearchableAdmin, parse_wanted
from chatsite.errors import InvalidInput, NotFound
from chatsite.look_only import LookOnlyAdmin
from chatsite.reasons import MOST_REASON, stated
from quotas.billing import statements, words
from quotas.billing.admin_refunds import RefundAdmin, Refunding
from quotas.billing.alerts import budget_of
from quotas.billing.models import BudgetAlert, Grant, SpendingFlag, Statement
from quotas.billing.statement_views import csv_of, find, shown
from quotas.money import shown as shown_money
from quotas.periods import today
from quotas.selectors import known_plans

__all__ = ["BudgetAlertAdmin", "GrantAdmin", "RefundAdmin", "Refunding", "SpendingFlagAdmin", "StatementAdmin"]
LONGEST_DAYS = 366


@admin.register(Statement)
class StatementAdmin(LookOnlyAdmin):
    """The organizations; behind each its months."""

    list_display = ["name", "months"]
    ordering = ["name"]
    search_fields = ["name", "memberships__user__email"]
    search_help_text = "Search by organization, by a member's email, or by the id of either"
    id_lookups = {"org": ["id"], "user": ["memberships__user_id"]}

    @admin.display(description="months (UTC)")
    def months(self, row: Statement) -> str:
        return joined(self._link(row, f"{each.start:%Y-%m}") for each in statements.months(row)[:6])

    def _link(self, organization: Organization, month: str) -> Link:
        return Link(month, reverse("admin:billing_statement_month", args=[organization.pk, month]))

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.month_view)
        return [
            path("<uuid:organization>/months/<str:month>/", view, name="billing_statement_month"),
            *super().get_urls(),
        ]

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> HttpResponse:
        """An organization's address leads to its newest month."""
        wanted = parse_wanted(object_id)
        if wanted is None:
            raise Http404
        return self.month_view(request, wanted.id, f"{today():%Y-%m}")

    def month_view(self, request: HttpRequest, organization: Any, month: str) -> HttpResponse:
        """A page; CSV where `month` ends so."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = Statement.objects.filter(pk=organization).first()
        if found is None:
            raise Http404
        name, dot, kind = month.partition(".")
        try:
            statement = find(found, name)
        except NotFound as error:
            raise Http404 from error
        if dot:
            if kind != "csv":
                raise Http404
            return csv_of(statement)
        months = [self._link(found, f"{each.start:%Y-%m}") for each in statements.months(found)]
        page = {
            **self.admin_site.each_context(request),
            **shown(statement),
            "title": f"{found.name}: {month}",
            "opts": self.opts,
            "original": found,
            "months": months,
            "csv": f"{self._link(found, name).address[:-1]}.csv/",
            "back": row_link("accounts_organization", found.pk, found.name).html,
        }
        return TemplateResponse(request, "admin/billing/statement.html", page)


class GrantForm(forms.ModelForm):
    reason = forms.CharField(
        max_length=MOST_REASON,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        help_text="Kept for ever. A ticket number and what was agreed is best.",
    )

    def clean_reason(self) -> str:
        try:
            return stated(self.cleaned_data["reason"])
        except InvalidInput as error:
            raise forms.ValidationError(error.message) from error

    def clean_last_day(self) -> Any:
        day = self.cleaned_data["last_day"]
        if day < today():
            raise forms.ValidationError("This day has passed (UTC).")
        if (day - today()).days > LONGEST_DAYS:
            raise forms.ValidationError("At most a year ahead: a plan is for what stays.")
        return day

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and (data["cost"] is None) == (data["tokens"] is None):
            raise forms.ValidationError("Give one: tokens, or a cost.")
        return data


class HoldsFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("holds", "Holds"), ("over", "Over")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        holds = Q(ended_at=None, last_day__gte=today())
        return queryset.filter({"holds": holds, "over": ~holds}.get(self.value() or "", Q()))


@admin.register(Grant)
class GrantAdmin(SearchableAdmin):
    """Grants are added and ended, and never changed."""

    form = GrantForm
    list_display = ["organization", "more", "last_day", "state", "granted_by", "reason", "created_at"]
    list_filter = [HoldsFilter]
    list_select_related = ["organization"]
    ordering = ["-id"]
    autocomplete_fields = ["organization"]
    search_fields = ["organization__name", "granted_by", "reason"]
    search_help_text = "Search by organization or its id, by who granted it, or in the reasons"
    id_lookups = {"org": ["organization_id"], "user": ["granted_by_id"]}
    fields = ["organization", "tokens", "cost", "last_day", "reason"]
    actions = ["end"]

    def get_fields(self, request: HttpRequest, obj: Grant | None = None) -> list[Any]:
        """What nobody fills in is shown later."""
        more = ["granted_by", "created_at", "ended_at", "ended_by"] if obj else []
        return [*super().get_fields(request, obj), *more]

    @admin.display(description="more in each period")
    def more(self, row: Grant) -> str:
        return f"{row.tokens:,} tokens" if row.cost is None else shown_money(row.cost, settings.CURRENCY)

    @admin.display(description="state")
    def state(self, row: Grant) -> str:
        if row.ended_at is not None:
            return f"ended by {row.ended_by}"
        return "holds" if row.last_day >= today() else "over"

    def has_change_permission(self, request: HttpRequest, obj: Grant | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Grant | None = None) -> bool:
        return False

    def has_end_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.change_grant"))

    def save_model(self, request: HttpRequest, obj: Grant, form: Any, change: bool) -> None:
        staff = cast(User, request.user)
        obj.granted_by_id, obj.granted_by = staff.pk, staff.email
        super().save_model(request, obj, form, change)
        known_plans.drop(obj.organization_id)

    @admin.action(description="End now", permissions=["end"])
    def end(self, request: HttpRequest, queryset: QuerySet[Grant]) -> None:
        count = 0
        for grant in queryset.filter(ended_at=None, last_day__gte=today()):
            # Only what is not ended yet: two of the staff at once end it once.
            ended = {"ended_at": timezone.now(), "ended_by": cast(User, request.user).email}
            if Grant.objects.filter(pk=grant.pk, ended_at=None).update(**ended):
                self.log_change(request, grant, "Ended.")
                count += 1
        known_plans.clear()
        self.message_user(request, f"{count} ended.", messages.SUCCESS if count else messages.WARNING)


@admin.register(BudgetAlert)
class BudgetAlertAdmin(LookOnlyAdmin):
    list_display = ["created_at", "organization", "title", "allowed", "reached", "mailed"]
    list_filter = ["threshold", "scope"]
    list_select_related = ["organization"]
    ordering = ["-id"]
    search_fields = ["organization__name"]
    search_help_text = "Search by organization or its id"
    id_lookups = {"org": ["organization_id"]}
    fields = ["created_at", "organization", "title", "allowed", "period_start", "reached", "mailed"]
    readonly_fields = ["allowed", "reached", "mailed"]

    @admin.display(description="limit")
    def allowed(self, row: BudgetAlert) -> str:
        return words.allowance(budget_of(row))

    @admin.display(description="reached")
    def reached(self, row: BudgetAlert) -> str:
        return f"{row.threshold} %: {words.spent(budget_of(row), row.spent)}"

    @admin.display(description="mail", empty_value=NOTHING)
    def mailed(self, row: BudgetAlert) -> str:
        return "waits" if row.mail_due else "sent"


@admin.register(SpendingFlag)
class SpendingFlagAdmin(LookOnlyAdmin):
    list_display = ["created_at", "organization", "whose_short", "in_an_hour", "as_usual", "paused"]
    list_filter = ["scope", "paused"]
    list_select_related = ["organization"]
    ordering = ["-created_at"]
    search_fields = ["organization__name"]
    search_help_text = "Search by organization, or by the id of one, of a user or of an API key"
    id_lookups = {"org": ["organization_id"], "user": ["subject_id"], "key": ["subject_id"]}
    fields = ["created_at", "organization", "whose", "in_an_hour", "as_usual", "paused"]
    readonly_fields = ["whose", "in_an_hour", "as_usual"]

    @admin.display(description="key or member")
    def whose(self, row: SpendingFlag) -> str:
        return id_link(*self._subject(row))

    @admin.display(description="key or member")
    def whose_short(self, row: SpendingFlag) -> str:
        return short_link(*self._subject(row))

    @staticmethod
    def _subject(row: SpendingFlag) -> tuple[str, str, UUID]:
        """Its model, the prefix of its public id, its id. The first key of a chain has the chain's id."""
        if row.scope == SpendingFlag.Scope.MEMBER:
            return "accounts_user", "user", row.subject_id
        return "accounts_apikey", "key", row.subject_id

    @admin.display(description="spent in an hour")
    def in_an_hour(self, row: SpendingFlag) -> str:
        return shown_money(row.spent, settings.CURRENCY)

    @admin.display(description="usual")
    def as_usual(self, row: SpendingFlag) -> str:
        return shown_money(row.usual, settings.CURRENCY)
