"""Who looks at a page: every view that needs somebody signed in says so with `signed_in`."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse

from chatsite.accounts.authentication import principal_at
from chatsite.accounts.models import User
from chatsite.accounts.protocol import Principal
from chatsite.accounts.services import working_place
from chatsite.database import run_db
from chatsite.error_responses import error_page
from chatsite.errors import AppError, MethodNotAllowed

P = ParamSpec("P")


@dataclass(frozen=True)
class Visitor:
    email: str
    name: str
    is_staff: bool
    principal: Principal
    organization: str = ""  # the name of a shared one that they work in


View = Callable[Concatenate[HttpRequest, Visitor, P], Awaitable[HttpResponse]]
AsyncView = Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponse]]


def allow(*methods: str) -> Callable[[AsyncView[P]], AsyncView[P]]:
    """Answers other methods with a page that says so, and with what there is."""

    def decorate(view: AsyncView[P]) -> AsyncView[P]:
        async def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method in methods:
                return await view(request, *args, **kwargs)
            answer = error_page(request, MethodNotAllowed())
            answer["Allow"] = ", ".join(methods)
            return answer

        update_wrapper(checked, view)
        return checked

    return decorate


def signed_in(view: View[P]) -> AsyncView[P]:
    """Gives the view its visitor; sends others to sign in. An error of ours becomes a page."""

    async def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        visitor = await visitor_of(request)
        if visitor is None:
            return to_login(request)
        try:
            return await view(request, visitor, *args, **kwargs)
        except AppError as error:
            return error_page(request, error)

    update_wrapper(guarded, view)
    return guarded


async def visitor_of(request: HttpRequest) -> Visitor | None:
    """None when nobody is signed in, or their account is disabled."""
    return await run_db(_visitor, request)


def to_login(request: HttpRequest) -> HttpResponse:
    """A page that htmx asks from is loaded anew, and so led to sign in and back."""
    if "HX-Request" in request.headers:
        return HttpResponse(status=401, headers={"HX-Refresh": "true"})
    return redirect_to_login(request.get_full_path())


def _visitor(request: HttpRequest) -> Visitor | None:
    user = request.user
    if not isinstance(user, User) or not user.is_active:
        return None
    place = working_place(user, request.session)
    shared = "" if place.organization.is_personal else place.organization.name
    return Visitor(user.email, user.name, user.is_staff, principal_at(place), shared)
