"""Who is in an organization: joining, roles, limits, leaving and being removed. Each change is in its history."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from chatsite.accounts import audit, history, keys, organizations, sessions
from chatsite.accounts.errors import LastOwner, NotAllowed, OrganizationFull, PersonalOrganization
from chatsite.accounts.models import LIMITS, ApiKey, Membership, Organization, OrganizationEvent, User
from chatsite.accounts.organizations import Held
from chatsite.accounts.protocol import Actor
from chatsite.accounts.roles import Permission, Role, may_manage
from chatsite.errors import NotFound

MAX_MEMBERS: Final = 500
Kind = OrganizationEvent.Kind


@transaction.atomic
def add(organization_id: UUID, user: User, role: Role, by: Actor) -> Membership:
    """By whoever runs the site; others invite. Raises NotFound, PersonalOrganization, OrganizationFull,
    TooManyOrganizations."""
    held = organizations.hold(organization_id, by, Permission.OWN)
    return join(held.organization, user, role, by)


def join(
    organization: Organization, user: User, role: Role, by: Actor, invitation_id: UUID | None = None
) -> Membership:
    """The organization being locked. Who is a member already stays what they are.

    Raises PersonalOrganization, OrganizationFull, TooManyOrganizations.
    """
    check_shared(organization)
    organizations.lock_user(user.pk)
    present = Membership.objects.filter(user=user, organization=organization).first()
    if present is not None:
        return present
    organizations.check_room(user)
    if Membership.objects.filter(organization=organization).count() >= MAX_MEMBERS:
        raise OrganizationFull
    place = Membership.objects.create(user=user, organization=organization, role=role)
    details = {"role": ("", str(role))}
    history.record(organization.pk, Kind.JOINED, by, member_id=user.pk, invitation_id=invitation_id, details=details)
    return place


@transaction.atomic
def change(organization_id: UUID, user_id: UUID, role: Role, limits: Mapping[str, Any], by: Actor) -> Membership:
    """Gives a member another role and other limits (by name, as in `models.LIMITS`; None: no such limit).

    Raises NotFound, NotAllowed, LastOwner, PersonalOrganization.
    """
    held = organizations.hold(organization_id, by, Permission.MANAGE_MEMBERS)
    check_shared(held.organization)
    place = _managed(held, user_id, role)
    if place.role == Role.OWNER != role:
        _check_other_owner(place)
    before = {name: audit.words(getattr(place, name)) for name in LIMITS}
    after = {name: audit.words(limits[name]) for name in LIMITS}
    changed = {audit.LIMIT_TITLES[name]: (before[name], after[name]) for name in LIMITS if before[name] != after[name]}
    if place.role != role:
        told = {"role": (str(place.role), str(role))}
        history.record(organization_id, Kind.ROLE, by, member_id=user_id, details=told)
    if changed:
        history.record(organization_id, Kind.LIMITS, by, member_id=user_id, details=changed)
    place.role = role
    for name in LIMITS:
        setattr(place, name, limits[name])
    place.save(update_fields=["role", *LIMITS])
    _tell(place)
    return place


@transaction.atomic
def remove(organization_id: UUID, user_id: UUID, by: Actor) -> None:
    """Ends a membership; the member's API keys there are revoked. Raises as `change` does."""
    held = organizations.hold(organization_id, by, Permission.MANAGE_MEMBERS)
    check_shared(held.organization)
    place = _managed(held, user_id)
    _end(place, Kind.REMOVED, by)


@transaction.atomic
def leave(organization_id: UUID, user_id: UUID, by: Actor) -> None:
    """As `remove`, by the member. Raises NotFound, LastOwner, PersonalOrganization."""
    organization = organizations.lock(organization_id)
    place = Membership.objects.filter(user_id=user_id, organization=organization).first()
    if place is None:
        raise NotFound
    check_shared(organization)
    _end(place, Kind.LEFT, by)


@transaction.atomic
def revoke_key(organization_id: UUID, user_id: UUID, key_id: UUID, by: Actor) -> ApiKey:
    """Ends a member's API key of this organization. Raises NotFound, NotAllowed."""
    held = organizations.hold(organization_id, by, Permission.MANAGE_KEYS)
    _managed(held, user_id)
    key = ApiKey.objects.filter(pk=key_id, user_id=user_id, organization_id=organization_id).first()
    if key is None:
        raise NotFound
    keys.revoke_api_key(key, by)
    return key


def check_shared(organization: Organization) -> None:
    """Raises PersonalOrganization."""
    if organization.is_personal:
        raise PersonalOrganization


def _managed(held: Held, user_id: UUID, *roles: Role) -> Membership:
    """The membership that is to be changed, to one of `roles`. Raises NotFound, NotAllowed."""
    place = Membership.objects.filter(user_id=user_id, organization=held.organization).first()
    if place is None:
        raise NotFound
    if not may_manage(held.role, place.role, *roles):
        raise NotAllowed("Only an owner can make, change or remove an owner.")
    return place


def _check_other_owner(place: Membership) -> None:
    """The organization being locked. Raises LastOwner."""
    owners = Membership.objects.filter(organization_id=place.organization_id, role=Role.OWNER, user__is_active=True)
    if not owners.exclude(pk=place.pk).exists():
        raise LastOwner


def _end(place: Membership, kind: OrganizationEvent.Kind, by: Actor) -> None:
    if place.role == Role.OWNER:
        _check_other_owner(place)
    organizations.lock_user(place.user_id)  # no key is made meanwhile
    for key in ApiKey.objects.filter(user_id=place.user_id, organization_id=place.organization_id, revoked_at=None):
        keys.revoke_api_key(key, by)
    Membership.objects.filter(pk=place.pk).delete()
    history.record(place.organization_id, kind, by, member_id=place.user_id)
    _tell(place)


def _tell(place: Membership) -> None:
    """Sessions and keys are looked at anew: here at once, and on the open pages of the member."""
    keys.forget(ApiKey.objects.filter(user_id=place.user_id, organization_id=place.organization_id, revoked_at=None))
    sessions.announce(place.user_id)
