"""Changes to accounts and keys."""

import hashlib
import secrets

from django.db import transaction
from django.utils import timezone

from chatsite.accounts import selectors
from chatsite.accounts.models import ApiKey, Membership, Organization, User
from chatsite.caching import ShortCache

KEY_PREFIX = "sk-"
KEY_BYTES = 32  # 43 characters, url-safe
VISIBLE_CHARACTERS = 8
CACHE_SECONDS = 5.0  # a revoked key or disabled user is refused everywhere after this long, here at once

known_keys: ShortCache[str, selectors.KeyHolder] = ShortCache(CACHE_SECONDS)


@transaction.atomic
def create_user(email: str, password: str | None, *, name: str = "", superuser: bool = False) -> User:
    """A user with an organization of their own. Raises IntegrityError when the address is taken."""
    create = User.objects.create_superuser if superuser else User.objects.create_user
    user = create(email, password, name=name)
    _create_organization(user)
    return user


def personal_organization(user: User) -> Organization:
    """Where the user's own work belongs. Made now for users that came by another way, such as `createsuperuser`."""
    found = selectors.personal_organization(user)
    if found is not None:
        return found
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two first requests at once make one organization
        return selectors.personal_organization(user) or _create_organization(user)


def _create_organization(user: User) -> Organization:
    organization = Organization.objects.create(name=user.name or user.email.partition("@")[0])
    Membership.objects.create(user=user, organization=organization, role=Membership.Role.OWNER)
    return organization


def create_api_key(user: User, organization: Organization, name: str) -> tuple[ApiKey, str]:
    """A new key and its text, which is kept nowhere: show it once."""
    text = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    key = ApiKey.objects.create(
        user=user, organization=organization, name=name, prefix=text[:VISIBLE_CHARACTERS], digest=digest_of(text)
    )
    return key, text


def digest_of(text: str) -> str:
    """What is stored of a key: SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def revoke_api_key(key: ApiKey) -> None:
    """Ends a key for good. Idempotent."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])
    known_keys.drop(key.digest)


def note_key_used(key: ApiKey) -> None:
    """Remembers when the key was last seen."""
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now())
