"""Who somebody is, read from the database."""

from dataclasses import dataclass
from importlib import import_module
from uuid import UUID

from django.conf import settings
from django.contrib import auth
from django.db.models import F, Q
from django.http import HttpRequest

from chatsite.accounts.models import ApiKey, Membership, Organization, User


@dataclass(frozen=True)
class KeyHolder:
    """A valid API key with those it stands for."""

    key: ApiKey
    user: User


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


def active_keys(user: User) -> list[ApiKey]:
    """The user's keys that work, the newest first."""
    return list(ApiKey.objects.filter(user=user, revoked_at=None).order_by("-created_at", "-id"))


def own_key(user: User, key_id: UUID) -> ApiKey | None:
    """The key when it is this user's, revoked or not."""
    return ApiKey.objects.filter(pk=key_id, user=user).first()


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
