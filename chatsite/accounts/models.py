"""People, the organizations that pay for them, and the keys that programs use."""

from collections.abc import Iterable
from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models, transaction
from django.db.models.functions import Lower
from django.utils import timezone

from chatsite.accounts.protocol import Via
from chatsite.accounts.roles import Role
from chatsite.ids import new_id, public_id
from chatsite.scopes import DEFAULT, Scope


def _known(field: str, values: Iterable[str], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=models.Q((f"{field}__in", [str(each) for each in values])), name=name)


def _where_set(field: str, name: str) -> models.Index:
    return models.Index(fields=[field], condition=models.Q((f"{field}__isnull", False)), name=name)


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, *, verified: bool = True, **extra: Any) -> "User":
        """`verified`: whoever makes the user vouches for the address. Sign-up does not come this way."""
        user = self.model(email=email.lower(), **extra)
        user.set_password(password)
        with transaction.atomic(using=self._db):
            user.save(using=self._db)
            EmailAddress.objects.using(self._db).create(user=user, email=user.email, primary=True, verified=verified)
        return user

    def create_superuser(self, email: str, password: str | None = None, **extra: Any) -> "User":
        return self.create_user(email, password, **{**extra, "is_staff": True, "is_superuser": True})

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").lower())


class User(AbstractBaseUser, PermissionsMixin):
    """Somebody who signs in with an email address."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(unique=True)
    name = models.CharField(max_length=150, blank=True)
    is_active = models.BooleanField(default=True)
    disabled_at = models.DateTimeField(null=True, editable=False)  # while it is not active; what runs is stopped by it
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="one_user_per_email_in_any_case")]
        indexes = [_where_set("disabled_at", "users_by_disabling")]

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()

    def __str__(self) -> str:
        return self.email

    def clean(self) -> None:
        self.email = self.email.lower()

    @property
    def public_id(self) -> str:
        return public_id("user", self.pk)

    @property
    def called(self) -> str:
        """What others call them: their name, else their address."""
        return self.name or self.email


class Organization(models.Model):
    """The tenant: what quotas, bills and cache isolation attach to."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=150)
    personal_of = models.OneToOneField(  # the one user whose own it is; null: it can have several members
        User, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )
    awaits_plan = models.BooleanField(  # without one of its own it is not on the default plan, but on none
        default=False, db_default=False, editable=False
    )
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name

    @property
    def has_no_plan(self) -> bool:
        """Nothing is accepted from it until it is given one. Plans are of a room above, which names them so."""
        return self.awaits_plan and not hasattr(self, "subscription")

    @property
    def public_id(self) -> str:
        return public_id("org", self.pk)

    @property
    def is_personal(self) -> bool:
        return self.personal_of_id is not None


LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent", "monthly_tokens", "monthly_cost")


class Limited(models.Model):
    """What may be used at most, within the organization's plan. Null: no such limit. Months are those of UTC."""

    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True)
    concurrent = models.PositiveIntegerField("replies at once", null=True, blank=True)
    monthly_tokens = models.PositiveBigIntegerField("tokens a month", null=True, blank=True)
    monthly_cost = models.DecimalField("cost a month", max_digits=12, decimal_places=2, null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def is_limited(self) -> bool:
        return any(getattr(self, name) is not None for name in LIMITS)


def _positive(*names: str) -> models.Q:
    """Each is null or more than nothing."""
    found = models.Q()
    for name in names:
        found &= models.Q((name, None)) | models.Q((f"{name}__gt", 0))
    return found


ROLES = [(each.value, each.name.capitalize()) for each in Role]


class Membership(Limited):
    """A user's place in an organization, and how much of its plan they may use there."""

    Role = Role

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=ROLES, default=Role.OWNER)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "organization"], name="one_membership_per_organization"),
            _known("role", Role, "membership_role_known"),
            models.CheckConstraint(condition=_positive(*LIMITS), name="membership_limits_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.organization_id} as {self.role}"


class Invitation(models.Model):
    """Somebody was asked by mail to join an organization. Only a hash of the link's token is kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()  # in lower case
    role = models.CharField(max_length=16, choices=ROLES, default=Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 in hex, of 256 random bits
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    signed_up = models.ForeignKey(  # who made an account with the link, and joins once its address is confirmed
        User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(default=timezone.now)  # last
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "email"],
                condition=models.Q(accepted_at=None, withdrawn_at=None),
                name="one_pending_invitation_per_address",
            ),
            _known("role", Role, "invitation_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.organization_id}"

    @property
    def public_id(self) -> str:
        return public_id("inv", self.pk)

    @property
    def is_pending(self) -> bool:
        """Neither accepted nor withdrawn; the link may have expired."""
        return self.accepted_at is None and self.withdrawn_at is None

    @property
    def is_expired(self) -> bool:
        return self.expires_at <= timezone.now()


class OrganizationEvent(models.Model):
    """Something was done in an organization. For ever: no foreign keys and no names, never changed."""

    class Kind(models.TextChoices):
        CREATED = "created"
        RENAMED = "renamed"
        INVITED = "invited"
        RESENT = "resent"
        WITHDRAWN = "withdrawn"
        JOINED = "joined"
        ROLE = "role"
        LIMITS = "limits"
        REMOVED = "removed"
        LEFT = "left"
        BUDGET_ADDED = "budget_added", "budget added"
        BUDGET_CHANGED = "budget_changed", "budget changed"
        BUDGET_DELETED = "budget_deleted", "budget deleted"
        WEBHOOK_ADDED = "webhook_added", "webhook added"
        WEBHOOK_CHANGED = "webhook_changed", "webhook changed"
        WEBHOOK_SECRET = "webhook_secret", "webhook's secret replaced"
        WEBHOOK_DELETED = "webhook_deleted", "webhook deleted"
        STOPPED = "stopped"
        RESUMED = "resumed"

    ENDINGS = (Kind.REMOVED, Kind.LEFT)  # of a membership

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    kind = models.CharField(max_length=16, choices=Kind.choices)
    member_id = models.UUIDField(null=True)  # whom it is about
    invitation_id = models.UUIDField(null=True)
    actor_id = models.UUIDField(null=True)  # who did it; null: a command
    via = models.CharField(max_length=16, choices=[(each.value, each.value) for each in Via])
    address = models.GenericIPAddressField(null=True)
    details = models.JSONField(default=list)  # of what changed: [name, before, after], as text that people read
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "organization event"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    kind__in=[
                        "created", "renamed", "invited", "resent", "withdrawn", "joined", "role", "limits", "removed",
                        "left", "budget_added", "budget_changed", "budget_deleted", "webhook_added", "webhook_changed",
                        "webhook_secret", "webhook_deleted", "stopped", "resumed",
                    ]
                ),
                name="organization_event_kind_known",
            ),
            _known("via", Via, "organization_event_via_known"),
        ]  # fmt: skip
        indexes = [
            models.Index(fields=["organization_id", "id"], name="events_of_an_organization"),
            models.Index(fields=["actor_id", "created_at"], name="organization_events_by_actor"),
            models.Index(fields=["member_id", "id"], name="organization_events_of_member"),
            models.Index(fields=["created_at"], condition=models.Q(kind__in=["removed", "left"]), name="members_gone"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} org_{self.organization_id}"


def default_scopes() -> list[str]:
    return [str(each) for each in DEFAULT]


class ApiKey(Limited):
    """A program's credential. Only a hash and a short visible prefix are kept; the key itself is shown once.

    Keys that replace one another are a chain, and share limits. Without any, those of member and plan apply alone.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 in hex: the key has 256 random bits, so no salt
    scopes = ArrayField(models.CharField(max_length=16), default=default_scopes, db_default=default_scopes())
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    expiry_told_at = models.DateTimeField(null=True, blank=True, editable=False)  # when its owner was mailed about it
    revoked_at = models.DateTimeField(null=True, blank=True)
    pause_when_unusual = models.BooleanField(default=False, db_default=False, editable=False)  # the same in a chain
    paused_at = models.DateTimeField(null=True, blank=True, editable=False)  # refused until its owner resumes it
    replaced_by = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="rotated_from"
    )
    chain_id = models.UUIDField(default=new_id, db_default=RandomUUID(), editable=False, db_index=True)  # its chain

    class Meta:
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=[str(each) for each in Scope], scopes__len__gt=0),
                name="api_key_scopes_known",
            ),
            models.CheckConstraint(
                condition=_positive("requests_per_minute", "tokens_per_minute", "concurrent"),
                name="api_key_limits_positive",
            ),
            models.CheckConstraint(
                condition=_positive("monthly_tokens", "monthly_cost"), name="api_key_monthly_limits_positive"
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=models.Q(revoked_at=None, replaced_by=None, expiry_told_at=None),
                name="api_keys_that_will_expire",
            ),
            _where_set("revoked_at", "api_keys_by_revocation"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def public_id(self) -> str:
        return public_id("key", self.pk)

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @property
    def is_working(self) -> bool:
        return self.revoked_at is None and not self.is_expired

    @property
    def is_replaced(self) -> bool:
        """Another key has taken its place; it may work for a while yet."""
        return self.replaced_by_id is not None


class KeyEvent(models.Model):
    """Something was done to an API key. For ever: no foreign keys, never changed."""

    class Kind(models.TextChoices):
        CREATED = "created"
        ROTATED = "rotated"
        CHANGED = "changed"
        REVOKED = "revoked"

    id = models.BigAutoField(primary_key=True)
    key_id = models.UUIDField()
    owner_id = models.UUIDField()
    organization_id = models.UUIDField()
    kind = models.CharField(max_length=16, choices=Kind.choices)
    actor_id = models.UUIDField(null=True)  # who did it; null: a command
    via = models.CharField(max_length=16, choices=[(each.value, each.value) for each in Via])
    address = models.GenericIPAddressField(null=True)
    details = models.JSONField(default=list)  # of what changed: [name, before, after], as text that people read
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "key event"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind__in=["created", "rotated", "changed", "revoked"]), name="key_event_kind_known"
            ),
            _known("via", Via, "key_event_via_known"),
        ]
        indexes = [
            models.Index(fields=["key_id", "id"], name="events_of_a_key"),
            models.Index(fields=["owner_id", "id"], name="events_of_keys_of_a_user"),
            models.Index(fields=["actor_id", "id"], name="events_by_actor"),
            models.Index(fields=["organization_id", "id"], name="events_by_organization"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} key_{self.key_id}"


class IdempotentCall(models.Model):
    """What a POST with an `Idempotency-Key` answered, so that a repeat gets the same answer and no second charge."""

    principal = models.UUIDField()
    route = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)  # null while the call is in flight
    answer = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["principal", "route", "key"], name="one_call_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
