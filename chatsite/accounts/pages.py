"""What the pages of an account have in common."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.cache import patch_cache_control

from chatsite.error_responses import handler400
from chatsite.errors import AppError

View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Sends others to sign in; keeps the page out of every cache; an error of ours becomes a page."""

    @login_required
    def guarded(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, request.user, **kwargs)
        except AppError as error:
            response = handler400(request, error)
        patch_cache_control(response, no_store=True, private=True)
        return response

    return guarded  # type: ignore[no-any-return]


def back_to(section: str) -> HttpResponse:
    """To a part of the account page."""
    return redirect(f"{reverse('account')}#{section}")
