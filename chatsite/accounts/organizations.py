"""Organizations: made, renamed, and held still while their members change.

Whatever changes who is in an organization, or what they may, locks its row first, and then looks. So an organization
keeps an owner and an invitation is accepted once, however many act at the same time. A user's row comes second.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from chatsite.accounts import history, selectors
from chatsite.accounts.errors import NotAllowed, TooManyOrganizations
from chatsite.accounts.models import Membership, Organization, OrganizationEvent, User
from chatsite.accounts.protocol import Actor, Via
from chatsite.accounts.roles import Permission, Role, may
from chatsite.errors import NotFound

MAX_ORGANIZATIONS: Final = 50  # one user is in
MADE_PER_MONTH: Final = 10  # by one user
MONTH: Final = timedelta(days=30)
Kind = OrganizationEvent.Kind


@dataclass(frozen=True)
class Held:
    """An organization whose row is locked, and the role of whoever changes something there."""

    organization: Organization
    role: Role


def hold(organization_id: UUID, by: Actor, needed: Permission) -> Held:
    """Locks the organization, in the caller's transaction. Staff and commands count as owners.

    Raises NotFound to who is no member, NotAllowed to whose role does not suffice.
    """
    organization = lock(organization_id)
    role = Role.OWNER if by.via is not Via.PAGE else None
    if role is None and by.user_id is not None:
        role = selectors.role_of(by.user_id, organization_id)
    if role is None:
        raise NotFound
    if not may(role, needed):
        raise NotAllowed
    return Held(organization, role)


def lock(organization_id: UUID) -> Organization:
    """Others may refer to the row meanwhile, but not lock it so. Raises NotFound."""
    found = Organization.objects.select_for_update(no_key=True, of=("self",)).filter(pk=organization_id).first()
    if found is None:
        raise NotFound
    return found


def lock_user(user_id: UUID) -> User:
    """After an organization, never before one."""
    return User.objects.select_for_update(no_key=True).get(pk=user_id)


@transaction.atomic
def create(user: User, name: str, by: Actor) -> Organization:
    """A shared organization that the user owns. Raises TooManyOrganizations.

    The first that somebody makes is on the default plan, and later ones await one of their own: otherwise whoever makes
    ten would have what is free eleven times. Those that were made before count, whoever owns them now.
    """
    lock_user(user.pk)
    check_room(user)
    made = OrganizationEvent.objects.filter(
        actor_id=user.pk, kind=Kind.CREATED, created_at__gt=timezone.now() - MONTH
    ).count()
    if made >= MADE_PER_MONTH:
        raise TooManyOrganizations(f"You have made {MADE_PER_MONTH} organizations in 30 days, which is the most.")
    organization = Organization.objects.create(name=name, awaits_plan=next_awaits_plan(user.pk))
    Membership.objects.create(user=user, organization=organization, role=Role.OWNER)
    history.record(organization.pk, Kind.CREATED, by, member_id=user.pk, details={"name": ("", name)})
    return organization


def next_awaits_plan(user_id: UUID) -> bool:
    """Whether the next organization that the user makes is not on the default plan."""
    made = OrganizationEvent.objects.filter(member_id=user_id, kind=Kind.CREATED).count()
    return made >= settings.ORGANIZATIONS_ON_DEFAULT_PLAN


def check_room(user: User) -> None:
    """For one more organization, the user's row being locked. Raises TooManyOrganizations."""
    if Membership.objects.filter(user=user).count() >= MAX_ORGANIZATIONS:
        raise TooManyOrganizations


@transaction.atomic
def rename(organization_id: UUID, name: str, by: Actor) -> None:
    """Raises NotFound, NotAllowed."""
    organization = hold(organization_id, by, Permission.RENAME).organization
    if name == organization.name:
        return
    history.record(organization.pk, Kind.RENAMED, by, details={"name": (organization.name, name)})
    organization.name = name
    organization.save(update_fields=["name"])
