"""Refunds in the admin: from the page of a ledger entry, with a reason."""

from decimal import Decimal
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from redis.exceptions import RedisError

from chatsite import typed
from chatsite.accounts.models import User
from chatsite.admin_links import id_link, list_link
from chatsite.errors import AppError
from chatsite.look_only import LookOnlyAdmin
from chatsite.reasons import LEAST_REASON, MOST_REASON
from quotas.billing.models import Refund
from quotas.billing.refunding import refund_with_reason, refunded
from quotas.billing.templatetags.billing import money
from quotas.models import LedgerEntry

MAY_REFUND = "billing.add_refund"
NO_REDIS = "The counters of budgets do not answer. Nothing was refunded; try again shortly."


class RefundForm(forms.Form):
    amount = typed.AmountField(
        min_value=Decimal("1e-10"),
        max_digits=20,
        decimal_places=10,
        error_messages={
            "required": "How much?",
            "invalid": "Write an amount such as 0.25.",
            "min_value": "A refund is more than 0.",
            "max_decimal_places": "At most ten digits after the point.",
        },
    )
    reason = forms.CharField(max_length=MOST_REASON, error_messages={"required": "Say why."})
    after = typed.WholeField(widget=forms.HiddenInput)


class Refunding(LookOnlyAdmin):
    """Ahead of the ledger's admin: a link on each entry, and the page behind it."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return [*super().get_fields(request, obj), "refunds"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return [*super().get_readonly_fields(request, obj), "refunds"]

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.refund_view)
        return [path("<int:entry_id>/refund/", view, name="quotas_ledgerentry_refund"), *super().get_urls()]

    @admin.display(description="refunds")
    def refunds(self, row: LedgerEntry) -> str:
        made = list_link("billing_refund", "Made so far", q=f"req_{row.request_id}").html
        address = reverse("admin:quotas_ledgerentry_refund", args=[row.pk])
        return format_html('{} · <a class="see" href="{}">Refund…</a>', made, address)

    def refund_view(self, request: HttpRequest, entry_id: int) -> HttpResponse:
        if not request.user.has_perm(MAY_REFUND):
            raise PermissionDenied
        entry = LedgerEntry.objects.filter(pk=entry_id).first()
        if entry is None:
            raise Http404
        first = {"after": refunded(entry.request_id)}
        form = RefundForm(request.POST if request.method == "POST" else None, initial=first)
        if request.method == "POST" and form.is_valid():
            try:
                made = refund_with_reason(cast(User, request.user), entry.request_id, **form.cleaned_data)
            except AppError as error:
                form.add_error(error.param if error.param in form.fields else None, error.message)
            except RedisError:
                form.add_error(None, NO_REDIS)
            else:
                self.log_change(request, entry, f"Refunded {money(made.amount)} {settings.CURRENCY}: {made.reason}")
                self.message_user(request, f"{money(made.amount)} {settings.CURRENCY} are refunded.", messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:quotas_ledgerentry_change", args=[entry.pk]))
        return self._refund_page(request, entry, form)

    def _refund_page(self, request: HttpRequest, entry: LedgerEntry, form: RefundForm) -> HttpResponse:
        left = LedgerEntry.objects.filter(request_id=entry.request_id).aggregate(left=Sum("cost"))["left"]
        page = {
            **self.admin_site.each_context(request),
            "title": "Refund",
            "opts": self.opts,
            "original": entry,
            "form": form,
            "request_id": f"req_{entry.request_id}",
            "left": money(left),
            "currency": settings.CURRENCY,
            "back": reverse("admin:quotas_ledgerentry_change", args=[entry.pk]),
            "least": LEAST_REASON,
            "most": MOST_REASON,
        }
        return TemplateResponse(request, "admin/billing/refund.html", page, status=400 if form.is_bound else 200)


@admin.register(Refund)
class RefundAdmin(LookOnlyAdmin):
    list_display = ["created_at", "request_link", "organization_link", "money", "staff_link", "reason"]
    ordering = ["-id"]
    sortable_by: list[str] = []
    search_fields = ["staff_email", "reason"]
    search_help_text = "Search by the id of a request, an organization or who refunded, by email, or in the reasons"
    id_lookups = {"req": ["request_id"], "org": ["organization_id"], "user": ["staff_id"]}
    fields = ["created_at", "request_link", "seq", "organization_link", "money", "staff_link", "reason"]
    readonly_fields = ["request_link", "organization_link", "money", "staff_link"]

    @admin.display(description="request")
    def request_link(self, row: Refund) -> str:
        return list_link("quotas_ledgerentry", f"req_{row.request_id}", q=f"req_{row.request_id}").html

    @admin.display(description="organization")
    def organization_link(self, row: Refund) -> str:
        return id_link("accounts_organization", "org", row.organization_id)

    @admin.display(description=f"amount in {settings.CURRENCY}")
    def money(self, row: Refund) -> str:
        return money(row.amount)

    @admin.display(description="by")
    def staff_link(self, row: Refund) -> str:
        return list_link("accounts_user", row.staff_email, q=f"user_{row.staff_id}").html
