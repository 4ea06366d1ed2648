"""Changes to accounts and keys. Those to sessions are in `sessions`."""

import hashlib
import secrets
from uuid import UUID

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.utils import timezone

from chatsite.accounts import selectors, sessions
from chatsite.accounts.errors import KeyExists, TooManyKeys
from chatsite.accounts.models import ApiKey, Membership, Organization, User
from chatsite.caching import ShortCache
from chatsite.errors import NotFound

KEY_PREFIX = "sk-"
KEY_BYTES = 32  # 43 characters, url-safe
VISIBLE_CHARACTERS = 8
MAX_ACTIVE_KEYS = 50  # of one user
CACHE_SECONDS = 5.0  # a revoked key or disabled user is refused everywhere after this long, here at once

known_keys: ShortCache[str, selectors.KeyHolder] = ShortCache(CACHE_SECONDS)


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
    User.objects.filter(pk=user.pk).update(is_active=False)
    user.is_active = False
    for digest in user.api_keys.values_list("digest", flat=True):
        known_keys.drop(digest)
    sessions.end_all(user)


def activate_user(user: User) -> None:
    """Lets the user in again, and their keys that are not revoked."""
    User.objects.filter(pk=user.pk).update(is_active=True)
    user.is_active = True


def personal_organization(user: User) -> Organization:
    """Where the user's own work belongs. Made now for users that came by another way, such as `createsuperuser`."""
    found = selectors.personal_organization(user)
    if found is not None:
        return found
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two first requests at once make one organization
        return selectors.personal_organization(user) or _create_organization(user)


def _create_organization(user: User) -> Organization:
    name = user.name or user.email.partition("@")[0]
    organization = Organization.objects.create(name=name[: Organization._meta.get_field("name").max_length])
    Membership.objects.create(user=user, organization=organization, role=Membership.Role.OWNER)
    return organization


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
        revoke_api_key(key)
    sessions.end_all(user)
    SocialAccount.objects.filter(user=user).delete()
    EmailAddress.objects.filter(user=user).exclude(email=user.email).delete()
    proven = {"primary": True, "verified": True}
    EmailAddress.objects.update_or_create(user=user, email=user.email, defaults=proven)
    return True


def create_api_key(user: User, organization: Organization, name: str, key_id: UUID | None = None) -> tuple[ApiKey, str]:
    """A new key and its text, which is kept nowhere: show it once."""
    text = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    key = ApiKey(user=user, organization=organization, name=name, prefix=text[:VISIBLE_CHARACTERS])
    key.digest = digest_of(text)
    key.id = key_id or key.id
    key.save(force_insert=True)
    return key, text


@transaction.atomic
def issue_api_key(user: User, name: str, key_id: UUID) -> tuple[ApiKey, str]:
    """A key for a form that was sent: `key_id` comes from the form, so that sending it twice makes one key.

    Raises KeyExists, TooManyKeys.
    """
    organization = personal_organization(user)
    User.objects.select_for_update().get(pk=user.pk)  # counts and ids are looked at one form at a time
    if ApiKey.objects.filter(pk=key_id).exists():
        raise KeyExists
    if user.api_keys.filter(revoked_at=None).count() >= MAX_ACTIVE_KEYS:
        raise TooManyKeys(f"You have {MAX_ACTIVE_KEYS} keys, which is the most. Revoke one that is not in use.")
    return create_api_key(user, organization, name, key_id)


def digest_of(text: str) -> str:
    """What is stored of a key: SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def revoke_own_key(user: User, key_id: UUID) -> ApiKey:
    """Raises NotFound when the key is not this user's."""
    key = ApiKey.objects.filter(pk=key_id, user=user).first()
    if key is None:
        raise NotFound
    revoke_api_key(key)
    return key


def revoke_api_key(key: ApiKey) -> None:
    """Ends a key for good. Idempotent."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])
    known_keys.drop(key.digest)


def note_key_used(key: ApiKey) -> None:
    """Remembers when the key was last seen."""
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now())
