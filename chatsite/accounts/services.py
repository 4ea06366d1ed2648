"""Changes to accounts. Those to sessions are in `sessions`, those to API keys in `keys`."""

from typing import Final
from uuid import UUID

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.utils import timezone

from chatsite.accounts import selectors, sessions
from chatsite.accounts.keys import create_api_key, digest_of, known_keys, revoke_api_key
from chatsite.accounts.models import Membership, Organization, User
from chatsite.accounts.protocol import SITE
from chatsite.accounts.roles import Role
from chatsite.errors import Conflict, NotFound

__all__ = [
    "activate_user",
    "claim_address",
    "create_api_key",
    "create_user",
    "deactivate_user",
    "digest_of",
    "known_keys",
    "personal_organization",
    "prove_address",
    "rename",
    "revoke_api_key",
    "settle_user",
    "work_in",
    "working_place",
]
ORGANIZATION: Final = "organization"  # in a session: the id of the one that it works in


@transaction.atomic
def create_user(
    email: str, password: str | None, *, name: str = "", superuser: bool = False, verified: bool = True
) -> User:
    """A user with an organization of their own. Raises IntegrityError when the address is taken."""
    create = User.objects.create_superuser if superuser else User.objects.create_user
    user = create(email, password, name=name, verified=verified)
    _create_organization(user)
    return user


@transaction.atomic
def settle_user(user: User) -> None:
    """For users that an operator has made or changed, whose address and password are then as the operator says."""
    personal_organization(user)
    EmailAddress.objects.filter(user=user).exclude(email=user.email, verified=True).delete()
    EmailAddress.objects.filter(email=user.email, verified=True).exclude(user=user).delete()
    EmailAddress.objects.update_or_create(user=user, email=user.email, defaults={"primary": True, "verified": True})
    sessions.announce(user.pk)


@transaction.atomic
def deactivate_user(user: User) -> None:
    """Signs the user out everywhere and lets nobody in as them, keys included, until activated again."""
    user.is_active, user.disabled_at = False, timezone.now()
    user.save(update_fields=["is_active", "disabled_at"])
    for digest in user.api_keys.values_list("digest", flat=True):
        known_keys.drop(digest)
    sessions.end_all(user)


def activate_user(user: User) -> None:
    """Lets the user in again, and their keys that are not revoked."""
    user.is_active, user.disabled_at = True, None
    user.save(update_fields=["is_active", "disabled_at"])


def personal_organization(user: User) -> Organization:
    """Where the user's own work belongs. Made now for users that came by another way, such as `createsuperuser`."""
    found = selectors.personal_organization(user)
    if found is not None:
        return found
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two first requests at once make one organization
        return selectors.personal_organization(user) or _create_organization(user)


def _create_organization(user: User) -> Organization:
    name = (user.name or user.email.partition("@")[0])[: Organization._meta.get_field("name").max_length]
    organization, _ = Organization.objects.get_or_create(personal_of=user, defaults={"name": name})
    Membership.objects.create(user=user, organization=organization, role=Role.OWNER)
    return organization


def working_place(user: User, session: SessionBase) -> Membership:
    """The membership with which a signed-in user works: that of the organization that the session has chosen, while
    they are a member there, else that of their own."""
    wanted = session.get(ORGANIZATION)
    place = selectors.current_place(user, wanted)
    if place is None:
        personal_organization(user)
        place = selectors.current_place(user, wanted)
    if place is None:
        raise Conflict
    return place


def work_in(user: User, session: SessionBase, organization_id: UUID) -> None:
    """From now on the session works in that organization, on all its open pages. Raises NotFound."""
    if selectors.role_of(user.pk, organization_id) is None:
        raise NotFound
    session[ORGANIZATION] = str(organization_id)
    session.save()  # before the pages look
    sessions.announce(user.pk)


def rename(user: User, name: str) -> None:
    """What others, and the models, see of the user's name. Empty is allowed."""
    user.name = name
    user.save(update_fields=["name"])


@transaction.atomic
def claim_address(email: str) -> User | None:
    """The account of an address whose owner has just been shown to be here, by the identity provider.

    An account that somebody else may have made with it, never verified, is emptied of everything that would let them
    in. Others who only meant to change to this address no longer can.
    """
    email = email.lower()
    EmailAddress.objects.filter(email=email, verified=False).exclude(user__email=email).delete()
    user = User.objects.select_for_update().filter(email=email).first()
    if user is not None and prove_address(user):
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user


@transaction.atomic
def prove_address(user: User) -> bool:
    """The owner of the user's address is here. False when that was known.

    Else somebody else may have made the account: their keys, sessions, sign-ins through the identity provider and
    changes of address that they have begun go. The password is the caller's.
    """
    if EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists():
        return False
    for key in user.api_keys.filter(revoked_at=None):
        revoke_api_key(key, SITE)
    sessions.end_all(user)
    SocialAccount.objects.filter(user=user).delete()
    EmailAddress.objects.filter(user=user).exclude(email=user.email).delete()
    proven = {"primary": True, "verified": True}
    EmailAddress.objects.update_or_create(user=user, email=user.email, defaults=proven)
    return True
