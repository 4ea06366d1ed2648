"""Who somebody is, read from the database."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.contrib import auth
from django.contrib.sessions.backends.base import SessionBase
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from chatsite.accounts.errors import KeyPaused
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
from chatsite.scopes import ALL, Scope

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
    return _key_holder(digest=digest)


def _key_holder(**which: object) -> KeyHolder | None:
    key: Any = (
        ApiKey.objects.select_related("user")
        .filter(**which, revoked_at=None, user__is_active=True, organization__memberships__user=F("user"))
        .annotate(**{f"member_{name}": F(f"{MEMBERSHIP}{name}") for name in LIMITS})  # of that same membership
        .first()
    )
    if key is None:
        return None
    return KeyHolder(key, key.user, _member_limits(key.user, {name: getattr(key, f"member_{name}") for name in LIMITS}))


def caller_now(user_id: UUID, organization_id: UUID, key_id: UUID | None) -> Principal | None:
    """Who sent something that starts only now, with the limits that they have by now. Raises KeyPaused.

    None when they may do nothing there any more: disabled, no longer a member, or the key has ended.
    """
    if key_id is None:
        place = place_in(user_id, organization_id)
        if place is None or not place.user.is_active:
            return None
        return Principal(user_id, organization_id, scopes=ALL, member_limits=limits_of(place))
    holder = _key_holder(pk=key_id)
    if holder is None or not holder.key.is_working:
        return None
    if holder.key.paused_at is not None:
        raise KeyPaused
    return holder.principal


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


@dataclass(frozen=True)
class Barred:
    """Who is not to do anything any more."""

    users: list[UUID]
    keys: list[UUID]
    members: list[tuple[UUID, UUID]]  # user and organization

    def __bool__(self) -> bool:
        return bool(self.users or self.keys or self.members)


def barred_since(since: datetime) -> Barred:
    """Users that were disabled since then, API keys that were revoked, members that have left or were removed: those
    that still are so. What was paused or has expired is not among them. Reads what has changed since, and no more."""
    users = User.objects.filter(disabled_at__gte=since, is_active=False)
    revoked = ApiKey.objects.filter(revoked_at__gte=since)
    gone = OrganizationEvent.objects.filter(kind__in=OrganizationEvent.ENDINGS, created_at__gte=since)
    again = Membership.objects.filter(user=OuterRef("member_id"), organization=OuterRef("organization_id"))
    left = gone.exclude(Exists(again)).values_list("member_id", "organization_id").distinct()
    return Barred(
        list(users.values_list("pk", flat=True)),
        list(revoked.values_list("pk", flat=True)),
        [(member_id, organization_id) for member_id, organization_id in left if member_id is not None],
    )


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
