"""What the pages about money have in common: whose organization is meant, and who may see it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from chatsite.accounts import selectors, services
from chatsite.accounts.errors import NotAllowed
from chatsite.accounts.models import Membership, User
from chatsite.accounts.pages import signed_in
from chatsite.accounts.roles import Permission, may
from chatsite.errors import NotFound
from chatsite.ids import parse_id

View = Callable[..., HttpResponse]


@dataclass(frozen=True)
class Tab:
    title: str
    address: str
    needed: Permission


TABS: Final = (
    Tab("Usage", "/usage/", Permission.USE),
    Tab("Budgets", "/usage/budgets/", Permission.MANAGE_BUDGETS),
    Tab("Statements", "/usage/statements/", Permission.SEE_BILLING),
    Tab("Webhooks", "/usage/webhooks/", Permission.MANAGE_WEBHOOKS),
)


def with_permission(needed: Permission) -> Callable[[View], View]:
    """Gives the view the membership of whoever asks, in the organization that the address or the form names, else in
    the one that the session works in. Somebody else's organization is not found."""

    def decorate(view: View) -> View:
        @signed_in
        @wraps(view)
        def guarded(request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse:
            place = _place(request, user)
            if not may(place.role, needed):
                raise NotAllowed
            return view(request, place, **kwargs)

        return guarded

    return decorate


def _place(request: HttpRequest, user: User) -> Membership:
    """Raises NotFound."""
    named = request.POST.get("organization") or request.GET.get("organization")
    if not named:
        return services.working_place(user, request.session)
    organization_id = parse_id("org", named)
    found = selectors.place_in(user.pk, organization_id) if organization_id else None
    if found is None:
        raise NotFound
    return found


def about(place: Membership, request: HttpRequest) -> dict[str, Any]:
    """The context of every such page: the organization, and the pages beside it that its reader may see."""
    return {
        "place": place,
        "organization": place.organization,
        "tabs": [each for each in TABS if may(place.role, each.needed)],
        "here": request.path,
        "tab_here": max((each.address for each in TABS if request.path.startswith(each.address)), key=len, default=""),
        "in_organization": f"?organization={place.organization.public_id}" if request.GET.get("organization") else "",
    }
