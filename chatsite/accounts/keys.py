"""API keys: made, changed, replaced, revoked. Each change is written into the key's history."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from chatsite.accounts import audit, selectors
from chatsite.accounts.errors import KeyEnded, KeyExists, KeyReplaced, TooManyKeys
from chatsite.accounts.models import LIMITS, ApiKey, KeyEvent, Organization, User
from chatsite.accounts.protocol import COMMAND, Actor
from chatsite.caching import ShortCache
from chatsite.errors import NotFound
from chatsite.scopes import DEFAULT, Scope

KEY_PREFIX: Final = "sk-"
KEY_BYTES: Final = 32  # 43 characters, url-safe
VISIBLE_CHARACTERS: Final = 8
MAX_ACTIVE_KEYS = 50  # of one user
CACHE_SECONDS: Final = 5.0  # a revoked key or disabled user is refused everywhere after this long, here at once
TITLES: Final = {"name": "name", "scopes": "scopes", "expires_at": "expires", **audit.LIMIT_TITLES}

known_keys: ShortCache[str, selectors.KeyHolder] = ShortCache(CACHE_SECONDS)


@dataclass(frozen=True)
class Terms:
    """What a key is called, what it may be used for, until when, and how much. None: for ever; no such limit."""

    name: str
    scopes: tuple[Scope, ...] = DEFAULT
    expires_at: datetime | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None
    monthly_cost: Decimal | None = None

    @classmethod
    def of(cls, key: ApiKey) -> "Terms":
        limits = {name: getattr(key, name) for name in LIMITS}
        return cls(key.name, tuple(map(Scope, key.scopes)), key.expires_at, **limits)

    def apply(self, key: ApiKey) -> None:
        key.name, key.scopes, key.expires_at = self.name, [str(each) for each in self.scopes], self.expires_at
        for limit in LIMITS:
            setattr(key, limit, getattr(self, limit))

    def words(self) -> dict[str, str]:
        """By title, as people read it."""
        return {title: audit.words(getattr(self, name)) for name, title in TITLES.items()}


def digest_of(text: str) -> str:
    """What is stored of a key: SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@transaction.atomic
def create_api_key(
    user: User, organization: Organization, terms: Terms | str, key_id: UUID | None = None, by: Actor = COMMAND
) -> tuple[ApiKey, str]:
    """A new key and its text, which is kept nowhere: show it once. A name alone stands for the usual terms."""
    terms = Terms(terms) if isinstance(terms, str) else terms
    key = ApiKey(user=user, organization=organization)
    text = _make(key, terms, key_id)
    key.chain_id = key.id
    key.save(force_insert=True)
    audit.record(key, KeyEvent.Kind.CREATED, by, {title: ("", told) for title, told in terms.words().items()})
    return key, text


def _make(key: ApiKey, terms: Terms, key_id: UUID | None) -> str:
    text = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    terms.apply(key)
    key.id = key_id or key.id
    key.prefix, key.digest = text[:VISIBLE_CHARACTERS], digest_of(text)
    return text


@transaction.atomic
def issue_api_key(user: User, organization: Organization, terms: Terms, key_id: UUID, by: Actor) -> tuple[ApiKey, str]:
    """A key for a form that was sent: `key_id` comes from the form, so that sending it twice makes one key.

    Raises NotFound when the user is no member, KeyExists, TooManyKeys.
    """
    User.objects.select_for_update().get(pk=user.pk)  # counts and ids are looked at one form at a time
    if selectors.role_of(user.pk, organization.pk) is None:
        raise NotFound
    if ApiKey.objects.filter(pk=key_id).exists():
        raise KeyExists
    if user.api_keys.filter(selectors.working(), replaced_by=None).count() >= MAX_ACTIVE_KEYS:
        raise TooManyKeys(f"You have {MAX_ACTIVE_KEYS} keys, which is the most. Revoke one that is not in use.")
    return create_api_key(user, organization, terms, key_id, by)


@transaction.atomic
def change_api_key(user: User, key_id: UUID, terms: Terms, by: Actor) -> ApiKey:
    """Gives the key other terms; its limits hold for all keys of its chain. Raises NotFound, KeyEnded, KeyReplaced."""
    key = _own_working(user, key_id)
    before, after = Terms.of(key).words(), terms.words()
    changed = {title: (before[title], told) for title, told in after.items() if told != before[title]}
    if not changed:
        return key
    if terms.expires_at != key.expires_at:
        key.expiry_told_at = None
    terms.apply(key)
    key.save()
    chain = ApiKey.objects.filter(chain_id=key.chain_id, revoked_at=None)
    chain.update(**{limit: getattr(terms, limit) for limit in LIMITS})
    audit.record(key, KeyEvent.Kind.CHANGED, by, changed)
    forget(chain)
    return key


@transaction.atomic
def rotate_api_key(
    user: User, key_id: UUID, new_id: UUID, overlap: timedelta, expires_at: datetime | None, by: Actor
) -> tuple[ApiKey, str]:
    """A key in place of another, on the same terms but for its end. The old one works for `overlap` longer.

    Both count against the same limits. Returns the new one and its text. `new_id` as in `issue_api_key`. Raises
    NotFound, KeyExists, KeyEnded, KeyReplaced, TooManyKeys.
    """
    User.objects.select_for_update().get(pk=user.pk)  # as in `issue_api_key`
    if ApiKey.objects.filter(pk=new_id).exists():
        raise KeyExists
    old = _own_working(user, key_id)
    most = 2 * MAX_ACTIVE_KEYS  # those that were replaced go on beside the new ones
    if overlap and user.api_keys.filter(selectors.working()).count() >= most:
        raise TooManyKeys(f"{most} of your keys work, which is the most. Let this one end at once, or revoke others.")
    terms = Terms.of(old)
    key = ApiKey(user=user, organization_id=old.organization_id, chain_id=old.chain_id)
    key.pause_when_unusual, key.paused_at = old.pause_when_unusual, old.paused_at
    text = _make(key, Terms(**{**vars(terms), "expires_at": expires_at}), new_id)
    key.save(force_insert=True)
    end = timezone.now() + overlap
    old.expires_at = end if old.expires_at is None else min(end, old.expires_at)
    old.replaced_by = key
    old.save(update_fields=["expires_at", "replaced_by"])
    told = {
        "replaced by": ("", key.public_id),
        "expires": (audit.words(terms.expires_at), audit.words(old.expires_at)),
    }
    audit.record(old, KeyEvent.Kind.ROTATED, by, told)
    made = {"in place of": ("", old.public_id), "expires": ("", audit.words(expires_at))}
    audit.record(key, KeyEvent.Kind.CREATED, by, made)
    forget(ApiKey.objects.filter(pk=old.pk))
    return key, text


def _own_working(user: User, key_id: UUID) -> ApiKey:
    """Locked. Raises NotFound, KeyEnded, KeyReplaced."""
    key = ApiKey.objects.select_for_update().filter(pk=key_id, user=user).first()
    if key is None:
        raise NotFound
    if key.is_replaced:
        raise KeyReplaced
    if not key.is_working:
        raise KeyEnded
    return key


def revoke_own_key(user: User, key_id: UUID, by: Actor) -> ApiKey:
    """Raises NotFound when the key is not this user's."""
    key = selectors.own_key(user, key_id)
    if key is None:
        raise NotFound
    revoke_api_key(key, by)
    return key


@transaction.atomic
def revoke_api_key(key: ApiKey, by: Actor = COMMAND) -> None:
    """Ends a key for good. Idempotent."""
    found = ApiKey.objects.filter(pk=key.pk)
    if found.filter(revoked_at=None).update(revoked_at=timezone.now()):
        audit.record(key, KeyEvent.Kind.REVOKED, by)
    key.refresh_from_db(fields=["revoked_at"])
    forget(found)


def forget(keys: QuerySet[ApiKey]) -> None:
    """What this process remembers of them goes, now and again after the commit, for who has read them meanwhile."""
    for digest in list(keys.values_list("digest", flat=True)):
        known_keys.drop(digest)
        transaction.on_commit(partial(known_keys.drop, digest))


def note_key_used(key: ApiKey) -> None:
    """Remembers when the key was last seen."""
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now())
