"""The scheduler's settings in the admin: one page for all of them."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from chatsite.admin_search import SearchableAdmin
from inference import tuning_changes
from inference.models import SchedulerTuning
from inference.scheduling.settings import SchedulerSettings
from inference.tuning import REFRESH_SECONDS
from inference.tuning_changes import Change, Outdated
from inference.tuning_forms import TuningForm

TAKEN_UP = f"Every process takes this up within {REFRESH_SECONDS:.0f} seconds."


@admin.register(SchedulerTuning)
class SchedulerTuningAdmin(SearchableAdmin):
    """There is one row or none, so that the page of the list is that of the row."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> SchedulerTuning | None:
        """The history has a page before anything was changed."""
        return SchedulerTuning.objects.first() or SchedulerTuning() if object_id == "1" else None

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.reset_view)
        return [path("reset/", view, name="inference_schedulertuning_reset"), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What the admin's history and recent actions link to."""
        return self._to_page()

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The row has no page besides this one's, so the way here does not name it again."""
        context = {"title": "History of the scheduler's settings", "object": None, **(extra_context or {})}
        answer: HttpResponse = super().history_view(request, object_id, context)
        return answer

    def get_paginator(self, request: HttpRequest, queryset: QuerySet, *args: Any, **kwargs: Any) -> Paginator:
        """Of the history, newest first: there is no list besides."""
        made: Paginator = super().get_paginator(request, queryset.order_by("-action_time"), *args, **kwargs)
        return made

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Shows the form, and saves it."""
        self._check(request)
        if request.GET:
            raise BadRequest("This page has no filters.")
        stored = tuning_changes.load()
        may_change = self.has_change_permission(request)
        data = request.POST if request.method == "POST" else None
        form = TuningForm(data, current=stored.values, may_change=may_change)
        version = data.get("version", "") if data is not None else stored.version
        outdated = False
        if form.is_valid():
            try:
                return self._save(request, form.wanted, version)
            except Outdated:
                outdated = True
        context = {
            "form": form,
            "stored": stored,
            "version": version,
            "outdated": outdated,
            "may_change": may_change,
            "differing": len(tuning_changes.differing_paths(stored.values)),
            "total": len(tuning_changes.SETTINGS),
        }
        return self._page(request, "tuning.html", context, status=200 if data is None else 400)

    def reset_view(self, request: HttpRequest) -> HttpResponse:
        """Asks, and goes back to the defaults."""
        self._check(request, to_change=True)
        if request.method == "POST":
            return self._save(request, SchedulerSettings(), None, "Reset to the defaults.")
        stored = tuning_changes.load()
        defaults = {name: each.default for name, each in tuning_changes.SETTINGS.items()}
        context = {"stored": stored, "changes": tuning_changes.changes_between(stored.values, defaults)}
        return self._page(request, "reset.html", context)

    def _check(self, request: HttpRequest, *, to_change: bool = False) -> None:
        """Raises PermissionDenied."""
        to_change = to_change or request.method == "POST"
        if not (self.has_change_permission(request) if to_change else self.has_view_or_change_permission(request)):
            raise PermissionDenied

    def _save(self, request: HttpRequest, wanted: SchedulerSettings, version: str | None, *said: str) -> HttpResponse:
        """The history gets a line for each change, after what is `said`. Raises Outdated."""
        with transaction.atomic():
            changes = tuning_changes.store(wanted, version)
            if changes:
                self.log_change(request, SchedulerTuning(), "\n".join([*said, *map(str, changes)]))
        self.message_user(request, _said(changes), messages.SUCCESS if changes else messages.INFO)
        return self._to_page()

    def _to_page(self) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:inference_schedulertuning_changelist"))

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
        page = {
            **self.admin_site.each_context(request),
            "title": "Scheduler settings",
            "opts": self.opts,
            "seconds": f"{REFRESH_SECONDS:.0f}",
            **context,
        }
        return TemplateResponse(request, f"admin/inference/schedulertuning/{template}", page, status=status)


def _said(changes: list[Change]) -> str:
    if not changes:
        return "No setting has changed."
    count = "1 setting has" if len(changes) == 1 else f"{len(changes)} settings have"
    return f"{count} changed. {TAKEN_UP}"
