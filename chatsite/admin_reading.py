"""A text in the admin that is shown only to who says why, each time."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.db.models.options import Options
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse

from chatsite.errors import InvalidInput, NotFound
from chatsite.ids import public_id
from chatsite.reasons import LEAST_REASON, MOST_REASON


class ReadWithReason:
    """Beside an admin class that has an `id_prefix`: its page `<id>/read/`, which the template `read.html` draws.

    `may_read` (of staff); `read_with_reason` (staff, id, reason) writes the record of who looks, and returns what the
    template has as `reading`. It raises InvalidInput for a reason that is none, NotFound.
    """

    model: type[Model]
    opts: "Options[Any]"
    admin_site: AdminSite
    id_prefix: str
    may_read: Callable[[Any], bool]
    read_with_reason: Callable[[Any, UUID, str], Any]

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.read_view)
        return [path("<uuid:pk>/read/", view, name=self._name("read")), *super().get_urls()]  # type: ignore[misc]

    def read_address(self, pk: UUID) -> str:
        return reverse(f"admin:{self._name('read')}", args=[pk])

    def read_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Asks why; shows the text only in answer to that."""
        if not self.may_read(request.user):
            raise PermissionDenied
        if not self.model._default_manager.filter(pk=pk).exists():
            raise Http404
        context: dict[str, Any] = {"reason": "", "error": "", "reading": None}
        status = 200
        if request.method == "POST":
            context["reason"] = request.POST.get("reason", "")
            try:
                context["reading"] = self.read_with_reason(request.user, pk, context["reason"])
            except InvalidInput as error:
                context["error"], status = error.message, 400
            except NotFound as error:
                raise Http404 from error
        return self._read_page(request, pk, context, status)

    def _read_page(self, request: HttpRequest, pk: UUID, context: dict[str, Any], status: int) -> HttpResponse:
        page = {
            **self.admin_site.each_context(request),
            "title": "Read the text",
            "opts": self.opts,
            "original": self.model(pk=pk),
            "shown": public_id(self.id_prefix, pk),
            "back": reverse(f"admin:{self._name('change')}", args=[pk]),
            "least": LEAST_REASON,
            "most": MOST_REASON,
            **context,
        }
        template = f"admin/{self.opts.app_label}/{self.opts.model_name}/read.html"
        answer = TemplateResponse(request, template, page, status=status)
        answer["Cache-Control"] = "no-store"
        return answer

    def _name(self, page: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"
