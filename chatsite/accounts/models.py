"""People, the organizations that pay for them, and the keys that programs use."""

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models, transaction
from django.db.models.functions import Lower
from django.utils import timezone

from chatsite.ids import new_id, public_id


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
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="one_user_per_email_in_any_case")]

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()

    def __str__(self) -> str:
        return self.email

    def clean(self) -> None:
        self.email = self.email.lower()


class Organization(models.Model):
    """The tenant: what quotas, bills and cache isolation attach to."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user's place in an organization."""

    class Role(models.TextChoices):
        OWNER = "owner"
        ADMIN = "admin"
        MEMBER = "member"
        BILLING = "billing"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.OWNER)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "organization"], name="one_membership_per_organization")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.organization_id} as {self.role}"


class ApiKey(models.Model):
    """A program's credential. Only a hash and a short visible prefix are kept; the key itself is shown once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 in hex: the key has 256 random bits, so no salt
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def public_id(self) -> str:
        return public_id("key", self.pk)


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
