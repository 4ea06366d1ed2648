"""What can go wrong with accounts and keys."""

from chatsite.errors import Conflict, NotAuthenticated, NotFound, PermissionDenied, RateLimited, Unavailable


class KeyExpired(NotAuthenticated):
    """This API key has expired."""


class KeyPaused(PermissionDenied):
    """This API key is paused: it spent far more than usual. Its owner can resume it on the account page."""

    code = "key_paused"
    should_retry = False


class KeyExists(Conflict):
    """This form was sent before, and its key was made then. Its text was shown once; without it, rotate this key."""


class TooManyKeys(Conflict):
    """You have as many keys as one user may have. Revoke one that is not in use."""


class KeyEnded(Conflict):
    """This key does not work any more. Make a new one."""


class KeyReplaced(Conflict):
    """Another key has taken this one's place already."""


class MailNotSent(Unavailable):
    """The mail could not be sent, and nothing was changed. Try again in a few minutes."""


class ProviderFailed(Unavailable):
    """The identity provider did not answer as it should. Try again shortly, or ask whoever runs this site."""

    should_retry = False  # the same address would be used twice: sign in anew


class NotAllowed(PermissionDenied):
    """Your role in this organization does not allow this. Ask one of its owners."""


class PersonalOrganization(Conflict):
    """This is somebody's own organization: it has no other members. Create one to work with others."""


class LastOwner(Conflict):
    """An organization keeps at least one owner. Make somebody else an owner first."""


class OrganizationFull(Conflict):
    """This organization has as many members and invitations as one may have."""


class TooManyOrganizations(Conflict):
    """You are in as many organizations as one person may be. Leave one first."""


class AlreadyMember(Conflict):
    """Somebody with this address is a member already."""


class AlreadyInvited(Conflict):
    """This address is invited already. Send that invitation again, or withdraw it."""


class TooManyInvitations(RateLimited):
    """Too many invitations were sent in a day. Try again tomorrow."""


class InvitationEnded(NotFound):
    """This invitation no longer works."""


class InvitationUnknown(InvitationEnded):
    """There is no invitation with this link. Look whether all of it was copied, or whether a newer mail has come."""


class InvitationAccepted(InvitationEnded):
    """This invitation was accepted already. Its link works once."""


class InvitationWithdrawn(InvitationEnded):
    """This invitation was withdrawn. Ask whoever invited you."""


class InvitationExpired(InvitationEnded):
    """This invitation has expired. Ask whoever invited you to send it again."""


class InvitationForAnother(PermissionDenied):
    """This invitation is for another address. Sign out, and open the link again with that one."""
