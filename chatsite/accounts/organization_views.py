"""The pages of an organization. Each names it in its address: a form that lies open acts on the one it was made for."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from chatsite.accounts import audit, history, invitations, members, organizations, roles, selectors, services
from chatsite.accounts.errors import InvitationEnded, NotAllowed, TooManyOrganizations
from chatsite.accounts.key_views import asks_or_does
from chatsite.accounts.models import Membership, User
from chatsite.accounts.organization_forms import InviteForm, MemberForm, OrganizationForm
from chatsite.accounts.pages import signed_in
from chatsite.accounts.protocol import Actor, Via
from chatsite.accounts.roles import Permission, Role, may
from chatsite.errors import AppError, Conflict, NotFound, RateLimited, Unavailable
from chatsite.ids import parse_id

View = Callable[..., HttpResponse]


def in_organization(needed: Permission = Permission.USE) -> Callable[[View], View]:
    """Gives the view the membership of whoever asks. Somebody else's organization is not found."""

    def decorate(view: View) -> View:
        @signed_in
        @wraps(view)
        def guarded(request: HttpRequest, user: User, organization: str, **kwargs: Any) -> HttpResponse:
            organization_id = parse_id("org", organization)
            place = selectors.place_in(user.pk, organization_id) if organization_id else None
            if place is None:
                raise NotFound
            if not may(place.role, needed):
                raise NotAllowed
            return view(request, place, **kwargs)

        return guarded

    return decorate


@require_safe
@signed_in
def current(request: HttpRequest, user: User) -> HttpResponse:
    """To the one in which this session works."""
    return redirect("organization", services.working_place(user, request.session).organization.public_id)


@asks_or_does
@signed_in
def new(request: HttpRequest, user: User) -> HttpResponse:
    """GET asks for a name, POST makes it and works there from now on."""
    form = OrganizationForm(request.POST if request.method == "POST" else None)
    context = {"form": form, "awaits_plan": organizations.next_awaits_plan(user.pk)}
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/organization_new.html", context, status=status)
    try:
        made = organizations.create(user, form.cleaned_data["name"], _by(request))
    except TooManyOrganizations as error:
        form.add_error(None, error.message)
        return render(request, "accounts/organization_new.html", context, status=error.status)
    services.work_in(user, request.session, made.pk)
    messages.success(request, f"You work in {made.name} now. Invite others to it here.")
    return redirect("organization", made.public_id)


@require_safe
@in_organization()
def organization(request: HttpRequest, place: Membership) -> HttpResponse:
    return _page(request, place)


@require_POST
@in_organization()
def switch(request: HttpRequest, place: Membership) -> HttpResponse:
    """Works there from now on; `next` is where to go then."""
    services.work_in(place.user, request.session, place.organization_id)
    messages.success(request, f"You work in {place.organization.name} now.")
    address = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure())
    return redirect(address if safe else reverse("organization", args=[place.organization.public_id]))


@require_POST
@in_organization(Permission.RENAME)
def name(request: HttpRequest, place: Membership) -> HttpResponse:
    form = OrganizationForm(request.POST)
    if not form.is_valid():
        return _page(request, place, name_form=form)
    organizations.rename(place.organization_id, form.cleaned_data["name"], _by(request))
    messages.success(request, "The name is saved.")
    return _back(place)


@asks_or_does
@in_organization()
def leave(request: HttpRequest, place: Membership) -> HttpResponse:
    """GET asks, POST does."""
    members.check_shared(place.organization)
    if request.method != "POST":
        return render(request, "accounts/organization_leave.html", {"place": place})
    try:
        members.leave(place.organization_id, place.user_id, _by(request))
    except AppError as error:
        return _refused(request, place, error)
    messages.success(request, f"You have left {place.organization.name}.")
    return redirect("organization_current")


# Members


@asks_or_does
@in_organization(Permission.MANAGE_MEMBERS)
def one_member(request: HttpRequest, place: Membership, member: str) -> HttpResponse:
    """GET shows a member's role, limits and keys, POST changes the first two."""
    other = _member(place, member)
    manages = not place.organization.is_personal and roles.may_manage(place.role, other.role)
    form = MemberForm(request.POST if request.method == "POST" else None, place=other, mine=place.role)
    if request.method == "POST" and form.is_valid():
        return _change(request, place, other, form)
    context = {
        "place": place,
        "member": other,
        "form": form if manages else None,
        "keys": selectors.keys_in(place.organization, other.user_id),
        "myself": other.user_id == place.user_id,
    }
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    return render(request, "accounts/member.html", context, status=status)


def _change(request: HttpRequest, place: Membership, other: Membership, form: MemberForm) -> HttpResponse:
    try:
        members.change(
            place.organization_id, other.user_id, Role(form.cleaned_data["role"]), form.limits(), _by(request)
        )
    except AppError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, f"{other.user.called} is saved.")
    if other.user_id == place.user_id:  # who may look at the page of a member no more
        return _back(place, "members")
    return redirect("organization_member", place.organization.public_id, other.user.public_id)


@asks_or_does
@in_organization(Permission.MANAGE_MEMBERS)
def remove(request: HttpRequest, place: Membership, member: str) -> HttpResponse:
    """GET asks, POST does."""
    other = _member(place, member)
    if request.method != "POST":
        return render(request, "accounts/member_remove.html", {"place": place, "member": other})
    try:
        members.remove(place.organization_id, other.user_id, _by(request))
    except AppError as error:
        return _refused(request, place, error)
    messages.success(request, f"{other.user.called} is removed.")
    return redirect("organization_current") if other.user_id == place.user_id else _back(place, "members")


@require_POST
@in_organization(Permission.MANAGE_KEYS)
def revoke_key(request: HttpRequest, place: Membership, member: str, key: str) -> HttpResponse:
    other, key_id = _member(place, member), parse_id("key", key)
    if key_id is None:
        raise NotFound
    revoked = members.revoke_key(place.organization_id, other.user_id, key_id, _by(request))
    messages.success(request, f"The key “{revoked.name}” is revoked.")
    return redirect("organization_member", place.organization.public_id, other.user.public_id)


# Invitations


@require_POST
@in_organization(Permission.MANAGE_MEMBERS)
def invite(request: HttpRequest, place: Membership) -> HttpResponse:
    members.check_shared(place.organization)
    form = InviteForm(request.POST, mine=place.role)
    if not form.is_valid():
        return _page(request, place, invite_form=form)
    email, role = form.cleaned_data["email"], Role(form.cleaned_data["role"])
    try:
        invitations.invite(place.organization_id, email, role, _by(request))
    except AppError as error:
        form.add_error(None, error.message)
        return _page(request, place, invite_form=form, status=error.status)
    messages.success(request, f"An invitation is on its way to {email.lower()}.")
    return _back(place, "invitations")


@require_POST
@in_organization(Permission.MANAGE_MEMBERS)
def resend(request: HttpRequest, place: Membership, invitation: str) -> HttpResponse:
    return _with_invitation(request, place, invitation, invitations.resend, "The invitation is sent again to {}.")


@require_POST
@in_organization(Permission.MANAGE_MEMBERS)
def withdraw(request: HttpRequest, place: Membership, invitation: str) -> HttpResponse:
    return _with_invitation(request, place, invitation, invitations.withdraw, "The invitation of {} is withdrawn.")


def _with_invitation(
    request: HttpRequest, place: Membership, invitation: str, work: Callable[..., Any], told: str
) -> HttpResponse:
    invitation_id = parse_id("inv", invitation)
    if invitation_id is None:
        raise NotFound
    try:
        found = work(place.organization_id, invitation_id, _by(request))
    except (InvitationEnded, NotAllowed, Conflict, RateLimited, Unavailable) as error:
        return _refused(request, place, error, "invitations")
    messages.success(request, told.format(found.email))
    return _back(place, "invitations")


# Helpers


def _by(request: HttpRequest) -> Actor:
    return audit.actor_of(request, Via.PAGE)


def _member(place: Membership, member: str) -> Membership:
    """Raises NotFound."""
    user_id = parse_id("user", member)
    found = selectors.place_in(user_id, place.organization_id) if user_id else None
    if found is None:
        raise NotFound
    return found


def _refused(request: HttpRequest, place: Membership, error: AppError, section: str = "members") -> HttpResponse:
    """What stands in the way is said on the page of the organization."""
    messages.error(request, error.message)
    return _back(place, section)


def _back(place: Membership, section: str = "") -> HttpResponse:
    address = reverse("organization", args=[place.organization.public_id])
    return redirect(f"{address}#{section}" if section else address)


def _page(
    request: HttpRequest,
    place: Membership,
    *,
    name_form: Form | None = None,
    invite_form: InviteForm | None = None,
    status: int = HTTPStatus.BAD_REQUEST,
) -> HttpResponse:
    """With a form that was refused, or without."""
    found = place.organization
    manages = may(place.role, Permission.MANAGE_MEMBERS) and not found.is_personal
    context = {
        "place": place,
        "organization": found,
        "name_form": name_form or OrganizationForm(initial={"name": found.name}),
        "may_rename": may(place.role, Permission.RENAME),
        "members": selectors.members_of(found),
        "manages": manages,
        "invite_form": invite_form or InviteForm(mine=place.role),
        "invitations": selectors.pending_invitations(found) if manages else [],
        "history": history.lines(selectors.events_in(found)) if may(place.role, Permission.SEE_HISTORY) else [],
        "places": selectors.places(place.user),
        "works_in": services.working_place(place.user, request.session).organization_id,
    }
    refused = name_form or invite_form
    return render(request, "accounts/organization.html", context, status=status if refused else HTTPStatus.OK)
