"""Invitations to an organization: mailed links that work once, for whoever owns the address.

The text of a link's token is in the mail alone; the database has its hash. Nothing here tells the inviter whether the
address has an account: an invitation is sent in any case, except to somebody who is a member already.
"""

import hashlib
import secrets
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from chatsite.accounts import history, members, organizations
from chatsite.accounts.errors import (
    AlreadyInvited,
    AlreadyMember,
    InvitationAccepted,
    InvitationExpired,
    InvitationForAnother,
    InvitationUnknown,
    InvitationWithdrawn,
    NotAllowed,
    OrganizationFull,
    TooManyInvitations,
)
from chatsite.accounts.models import Invitation, Membership, OrganizationEvent, User
from chatsite.accounts.protocol import Actor
from chatsite.accounts.roles import Permission, Role, may_manage
from chatsite.errors import AppError, NotFound

LIFE: Final = timedelta(days=7)
TOKEN_BYTES: Final = 32
MAX_TOKEN: Final = 64  # characters
DAY: Final = timedelta(days=1)
PER_DAY: Final = 50  # mails of one organization, and of one person
PAUSE: Final = timedelta(minutes=1)  # from one mail to an address to the next
Kind = OrganizationEvent.Kind
log = structlog.stdlib.get_logger(__name__)


def digest_of(token: str) -> str:
    """What is stored of a token: SHA-256 in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


@transaction.atomic
def invite(organization_id: UUID, email: str, role: Role, by: Actor) -> Invitation:
    """Mails a link to the address. One that was invited before, whose link has expired, gets a new one.

    Raises NotFound, NotAllowed, PersonalOrganization, AlreadyMember, AlreadyInvited, TooManyInvitations,
    OrganizationFull, MailNotSent; nothing is changed then.
    """
    held = organizations.hold(organization_id, by, Permission.MANAGE_MEMBERS)
    members.check_shared(held.organization)
    _check_role(held.role, role)
    email = email.lower()
    if Membership.objects.filter(organization_id=organization_id, user__email=email).exists():
        raise AlreadyMember
    pending = _pending(organization_id)
    invitation = pending.filter(email=email).first() or Invitation(organization_id=organization_id, email=email)
    if not invitation._state.adding and not invitation.is_expired:
        raise AlreadyInvited
    _check_room(organization_id)
    invitation.role, invitation.invited_by_id = role, by.user_id
    _send(invitation, Kind.INVITED, by)
    return invitation


@transaction.atomic
def resend(organization_id: UUID, invitation_id: UUID, by: Actor) -> Invitation:
    """Mails a new link, for another week; the one before no longer works. Raises as `invite` does."""
    held = organizations.hold(organization_id, by, Permission.MANAGE_MEMBERS)
    invitation = _find(organization_id, invitation_id)
    _check_role(held.role, Role(invitation.role))
    if timezone.now() - invitation.sent_at < PAUSE:
        raise TooManyInvitations("This invitation was just sent. Wait a minute, then try again.")
    _send(invitation, Kind.RESENT, by)
    return invitation


@transaction.atomic
def withdraw(organization_id: UUID, invitation_id: UUID, by: Actor) -> Invitation:
    """Its link no longer works. Raises NotFound, NotAllowed, InvitationAccepted. Idempotent."""
    held = organizations.hold(organization_id, by, Permission.MANAGE_MEMBERS)
    invitation = _find(organization_id, invitation_id, withdrawn=True)
    _check_role(held.role, Role(invitation.role))
    if invitation.withdrawn_at is None:
        invitation.withdrawn_at = timezone.now()
        invitation.save(update_fields=["withdrawn_at"])
        history.record(organization_id, Kind.WITHDRAWN, by, invitation_id=invitation.pk)
    return invitation


def find(token: str) -> Invitation:
    """The invitation of a link that still works.

    Raises InvitationUnknown, InvitationAccepted, InvitationWithdrawn, InvitationExpired.
    """
    found = None
    if len(token) <= MAX_TOKEN:
        found = Invitation.objects.select_related("organization", "invited_by").filter(digest=digest_of(token)).first()
    if found is None:
        raise InvitationUnknown
    _check_open(found)
    return found


def is_for(invitation: Invitation, user: User) -> bool:
    """Whether the user has shown that the invited address is theirs."""
    owned = EmailAddress.objects.filter(user=user, email=invitation.email, verified=True)
    return user.email == invitation.email and owned.exists()


def accept(token: str, user: User, by: Actor) -> Membership:
    """The user joins. Raises as `find` does, and InvitationForAnother, OrganizationFull, TooManyOrganizations."""
    return _take_up(find(token), user, by)


def note_sign_up(token: str, user: User) -> None:
    """Somebody makes an account with the link. They join once their address is confirmed, if it is the invited one."""
    open_ones = Invitation.objects.filter(digest=digest_of(token), email=user.email, expires_at__gt=timezone.now())
    open_ones.filter(accepted_at=None, withdrawn_at=None).update(signed_up=user)


def join_after_sign_up(user: User, by: Actor) -> list[Membership]:
    """The address of a new user is confirmed: they join where they signed up for, unless that has ended meanwhile."""
    found = []
    for waiting in Invitation.objects.filter(signed_up=user, accepted_at=None, withdrawn_at=None):
        try:
            found.append(_take_up(waiting, user, by))
        except AppError as error:
            log.info("invitation not taken up", invitation=waiting.public_id, reason=error.message)
    return found


@transaction.atomic
def _take_up(waiting: Invitation, user: User, by: Actor) -> Membership:
    organization = organizations.lock(waiting.organization_id)
    invitation = Invitation.objects.get(pk=waiting.pk)  # as it is now that nobody else changes it
    _check_open(invitation)
    if not is_for(invitation, user):
        raise InvitationForAnother(
            f"This invitation is for {invitation.email}, and you are signed in as {user.email}. "
            "Sign out, and open the link again with that address."
        )
    invitation.accepted_at = timezone.now()
    invitation.save(update_fields=["accepted_at"])
    place = members.join(organization, user, Role(invitation.role), by, invitation.pk)
    place.organization = organization
    return place


def _pending(organization_id: UUID) -> QuerySet[Invitation]:
    return Invitation.objects.filter(organization_id=organization_id, accepted_at=None, withdrawn_at=None)


def _find(organization_id: UUID, invitation_id: UUID, *, withdrawn: bool = False) -> Invitation:
    """The organization being locked. Raises NotFound, InvitationAccepted, InvitationWithdrawn."""
    found = Invitation.objects.filter(pk=invitation_id, organization_id=organization_id).first()
    if found is None:
        raise NotFound
    if found.accepted_at is not None:
        raise InvitationAccepted
    if found.withdrawn_at is not None and not withdrawn:
        raise InvitationWithdrawn
    return found


def _check_open(invitation: Invitation) -> None:
    if invitation.accepted_at is not None:
        raise InvitationAccepted
    if invitation.withdrawn_at is not None:
        raise InvitationWithdrawn
    if invitation.is_expired:
        raise InvitationExpired


def _check_role(mine: Role, theirs: Role) -> None:
    if not may_manage(mine, theirs):
        raise NotAllowed("Only an owner can invite an owner.")


def _check_room(organization_id: UUID) -> None:
    """Raises OrganizationFull: for the members, and those who are invited."""
    places = Membership.objects.filter(organization_id=organization_id).count() + _pending(organization_id).count()
    if places >= members.MAX_MEMBERS:
        raise OrganizationFull


def _send(invitation: Invitation, kind: OrganizationEvent.Kind, by: Actor) -> None:
    """Raises TooManyInvitations, MailNotSent."""
    _check_rate(invitation.organization_id, by)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    invitation.digest = digest_of(token)
    invitation.sent_at = timezone.now()
    invitation.expires_at = invitation.sent_at + LIFE
    invitation.save()
    history.record(
        invitation.organization_id, kind, by, invitation_id=invitation.pk, details={"role": ("", str(invitation.role))}
    )
    context = {
        "invitation": invitation,
        "inviter": invitation.invited_by.email if invitation.invited_by else "",
        "invitation_url": reverse("invitation", args=[token]),
    }
    get_adapter().send_mail("accounts/mail/invitation", invitation.email, context)


def _check_rate(organization_id: UUID, by: Actor) -> None:
    """The organization being locked. Raises TooManyInvitations."""
    sent = OrganizationEvent.objects.filter(kind__in=[Kind.INVITED, Kind.RESENT], created_at__gt=timezone.now() - DAY)
    if sent.filter(organization_id=organization_id).count() >= PER_DAY:
        raise TooManyInvitations(f"This organization has sent {PER_DAY} invitations in a day. Try again tomorrow.")
    if by.user_id is not None:
        organizations.lock_user(by.user_id)
        if sent.filter(actor_id=by.user_id).count() >= PER_DAY:
            raise TooManyInvitations(f"You have sent {PER_DAY} invitations in a day. Try again tomorrow.")
