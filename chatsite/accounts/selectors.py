"""Who somebody is, read from the database."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Final
from uuid import UUID

from django.conf import settings
from django.contrib import auth
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatsite.accounts.models import ApiKey, KeyEvent, Membership, Organization, User
from chatsite.accounts.protocol import KeyLimits, Principal
from chatsite.scopes import Scope

LISTED_ENDED: Final = 20
LISTED_EVENTS: Final = 100


@dataclass(frozen=True)
class KeyHolder:
    """An API key that is not revoked, with those it stands for. It may have expired."""

    key: ApiKey
    user: User

    @cached_property
    def principal(self) -> Principal:
        return principal_of(self.key)


def key_holder(digest: str) -> KeyHolder | None:
    """The holder of the key with this SHA-256.

    None when the key is unknown or revoked, or its user is disabled or no longer a member.
    """
    key = (
        ApiKey.objects.select_related("user")
        .filter(digest=digest, revoked_at=None, user__is_active=True, organization__memberships__user=F("user"))
        .first()
    )
    return KeyHolder(key, key.user) if key else None


def principal_of(key: ApiKey) -> Principal:
    """The caller that has this key."""
    limits = None
    if not (key.requests_per_minute is key.tokens_per_minute is key.concurrent is None):
        limits = KeyLimits(key.chain_id, key.name, key.requests_per_minute, key.tokens_per_minute, key.concurrent)
    return Principal(key.user_id, key.organization_id, key.id, frozenset(map(Scope, key.scopes)), limits)


def working() -> Q:
    """Of API keys: those that let somebody in."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=timezone.now()))


def working_keys(user: User) -> list[ApiKey]:
    """The user's keys that work, the newest first."""
    return list(_of(user).filter(working()))


def ended_keys(user: User) -> list[ApiKey]:
    """The newest of the user's keys that do not work any more."""
    return list(_of(user).exclude(working())[:LISTED_ENDED])


def _of(user: User) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(user=user).order_by("-created_at", "-id")


def own_key(user: User, key_id: UUID) -> ApiKey | None:
    """The key when it is this user's, whether it works or not."""
    return ApiKey.objects.filter(pk=key_id, user=user).first()


def events_of(key: ApiKey) -> list[KeyEvent]:
    """What was done to the key, the newest first."""
    return list(KeyEvent.objects.filter(key_id=key.pk).order_by("-id")[:LISTED_EVENTS])


def session_user(session_key: str) -> User | None:
    """Who is signed in with this session; None when it has ended, the password was changed or the user is disabled."""
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = auth.get_user(request)
    return user if isinstance(user, User) else None


def organizations_behind(identifier: UUID) -> list[UUID]:
    """The organizations of the user or API key that has this id; empty when there is neither."""
    of_user = Membership.objects.filter(user_id=identifier).values_list("organization_id", flat=True)
    of_keys = ApiKey.objects.filter(Q(id=identifier) | Q(user_id=identifier)).values_list("organization_id", flat=True)
    return list({*of_user, *of_keys})


def personal_organization(user: User) -> Organization | None:
    """The first organization that the user owns, else the first they belong to."""
    memberships = Membership.objects.filter(user=user).select_related("organization").order_by("created_at", "id")
    found = list(memberships[:100])
    owned = [each for each in found if each.role == Membership.Role.OWNER]
    return (owned or found)[0].organization if found else None
