"""Who somebody is, read from the database."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.contrib import auth
from django.contrib.sessions.backends.base import SessionBase
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatsite.accounts.models import (
    LIMITS,
    ApiKey,
    Invitation,
    KeyEvent,
    Membership,
    Organization,
    OrganizationEvent,
    User,
)
from chatsite.accounts.protocol import KeyLimits, MemberLimits, Principal
from chatsite.accounts.roles import Role
from chatsite.scopes import Scope

LISTED_ENDED: Final = 20
LISTED_EVENTS: Final = 100


MEMBERSHIP: Final = "organization__memberships__"


@dataclass(frozen=True)
class KeyHolder:
    """An API key that is not revoked, with those it stands for. It may have expired."""

    key: ApiKey
    user: User
    member_limits: MemberLimits | None = None

    @cached_property
    def principal(self) -> Principal:
        return principal_of(self.key, self.member_limits)


def key_holder(digest: str) -> KeyHolder | None:
    """The holder of the key with this SHA-256.

    None when the key is unknown or revoked, or its user is disabled or no longer a member.
    """
    key: Any = (
        ApiKey.objects.select_related("user")
        .filter(digest=digest, revoked_at=None, user__is_active=True, organization__memberships__user=F("user"))
        .annotate(**{f"member_{name}": F(f"{MEMBERSHIP}{name}") for name in LIMITS})  # of that same membership
        .first()
    )
    if key is None:
        return None
    return KeyHolder(key, key.user, _member_limits(key.user, {name: getattr(key, f"member_{name}") for name in LIMITS}))


def principal_of(key: ApiKey, member_limits: MemberLimits | None = None) -> Principal:
    """The caller that has this key."""
    limits = None
    if key.is_limited:
        limits = KeyLimits(key.chain_id, key.name, **{name: getattr(key, name) for name in LIMITS})
    scopes = frozenset(map(Scope, key.scopes))
    return Principal(key.user_id, key.organization_id, key.id, scopes, limits, member_limits, key.chain_id)


def limits_of(place: Membership) -> MemberLimits | None:
    """None where the member has no limits. Reads `place.user`."""
    return _member_limits(place.user, {name: getattr(place, name) for name in LIMITS})


def _member_limits(user: User, limits: dict[str, Any]) -> MemberLimits | None:
    if all(each is None for each in limits.values()):
        return None
    return MemberLimits(user.pk, user.called, **limits)


def disabled_among(user_ids: Collection[UUID]) -> list[UUID]:
    """Those that are not to do anything any more."""
    found = User.objects.filter(pk__in=user_ids, is_active=False)
    return list(found.values_list("pk", flat=True)) if user_ids else []


def revoked_among(key_ids: Collection[UUID]) -> list[UUID]:
    """Of API keys: those that were ended for good, which does not include expiry."""
    found = ApiKey.objects.filter(pk__in=key_ids, revoked_at__isnull=False)
    return list(found.values_list("pk", flat=True)) if key_ids else []


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
    return ApiKey.objects.filter(user=user).select_related("organization").order_by("-created_at", "-id")


def own_key(user: User, key_id: UUID) -> ApiKey | None:
    """The key when it is this user's, whether it works or not."""
    return ApiKey.objects.filter(pk=key_id, user=user).first()


def events_of(key: ApiKey) -> list[KeyEvent]:
    """What was done to the key, the newest first."""
    return list(KeyEvent.objects.filter(key_id=key.pk).order_by("-id")[:LISTED_EVENTS])


def session_user(session_key: str) -> tuple[User, SessionBase] | None:
    """Who is signed in with this session, and the session.

    None when it has ended, the password was changed or the user is disabled.
    """
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = auth.get_user(request)
    return (user, request.session) if isinstance(user, User) else None


def organizations_behind(identifier: UUID) -> list[UUID]:
    """The organizations of the user or API key that has this id; empty when there is neither."""
    of_user = Membership.objects.filter(user_id=identifier).values_list("organization_id", flat=True)
    of_keys = ApiKey.objects.filter(Q(id=identifier) | Q(user_id=identifier)).values_list("organization_id", flat=True)
    return list({*of_user, *of_keys})


def places(user: User) -> list[Membership]:
    """The user's memberships, with their organizations: their own first, then the oldest."""
    found = list(Membership.objects.filter(user=user).select_related("organization").order_by("created_at", "id"))
    for each in found:
        each.user = user
    return sorted(found, key=lambda each: each.organization.personal_of_id != user.pk)


def current_place(user: User, wanted: str | None) -> Membership | None:
    """Where the user works: in the organization with the id `wanted` while they are a member, else in their own."""
    found = places(user)
    chosen = next((each for each in found if str(each.organization_id) == wanted), None) if wanted else None
    return chosen or _home(found)


def personal_organization(user: User) -> Organization | None:
    """The user's own organization; without one the first that they own, else the first they belong to."""
    home = _home(places(user))
    return home.organization if home else None


def _home(found: list[Membership]) -> Membership | None:
    own = [each for each in found if each.organization.is_personal]
    owned = [each for each in found if each.role == Role.OWNER]
    return next(iter(own or owned or found), None)


def place_in(user_id: UUID, organization_id: UUID) -> Membership | None:
    """The user's membership of the organization, with both; None when they are no member."""
    found = Membership.objects.filter(user_id=user_id, organization_id=organization_id)
    return found.select_related("organization", "user").first()


def role_of(user_id: UUID, organization_id: UUID) -> Role | None:
    """The user's role there (see `roles.may`); None when they are no member."""
    role = Membership.objects.filter(user_id=user_id, organization_id=organization_id).values_list("role").first()
    return Role(role[0]) if role else None


def members_of(organization: Organization) -> list[Membership]:
    """With their users: owners first, then by when they joined."""
    found = Membership.objects.filter(organization=organization).select_related("user").order_by("created_at", "id")
    ranks = list(Role)
    return sorted(found, key=lambda each: ranks.index(Role(each.role)))


def pending_invitations(organization: Organization) -> list[Invitation]:
    """The newest first, those with an expired link included."""
    found = Invitation.objects.filter(organization=organization, accepted_at=None, withdrawn_at=None)
    return list(found.select_related("invited_by").order_by("-sent_at"))


def events_in(organization: Organization) -> list[OrganizationEvent]:
    """What was done in the organization, the newest first."""
    return list(OrganizationEvent.objects.filter(organization_id=organization.pk).order_by("-id")[:LISTED_EVENTS])


def keys_in(organization: Organization, user_id: UUID) -> list[ApiKey]:
    """The user's keys of that organization that work, the newest first."""
    found = ApiKey.objects.filter(working(), organization=organization, user_id=user_id)
    return list(found.order_by("-created_at", "-id"))
