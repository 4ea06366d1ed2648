"""Plans, who is on which, and the ledger of what was used."""

from django.db import models
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.ids import new_id


class Tier(models.TextChoices):
    """What a plan buys in the queue; models.toml names tiers too."""

    FREE = "free"
    PAID = "paid"
    ENTERPRISE = "enterprise"


class Plan(models.Model):
    """What an organization may use."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.SlugField(unique=True)
    tier = models.CharField(max_length=16, choices=Tier.choices, default=Tier.FREE)
    tokens_per_minute = models.PositiveIntegerField()
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no such limit")
    concurrent = models.PositiveIntegerField(help_text="Replies that may run at once")
    is_default = models.BooleanField(default=False, help_text="Given to new organizations")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=models.Q(is_default=True), name="one_default_plan"
            ),
            models.CheckConstraint(condition=models.Q(tier__in=Tier.values), name="plan_tier_known"),
            models.CheckConstraint(
                condition=models.Q(tokens_per_minute__gt=0, concurrent__gt=0), name="plan_limits_positive"
            ),
            models.CheckConstraint(
                condition=models.Q(requests_per_minute=None) | models.Q(requests_per_minute__gt=0),
                name="plan_requests_positive",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Subscription(models.Model):
    """Which plan an organization is on."""

    organization = models.OneToOneField(
        Organization, on_delete=models.CASCADE, primary_key=True, related_name="subscription"
    )
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT)
    since = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.organization_id} on {self.plan_id}"


class LedgerEntry(models.Model):
    """One use of tokens, for ever: no foreign keys, no personal data, never changed. Corrections are new rows."""

    class Kind(models.TextChoices):
        USAGE = "usage"

    class Source(models.TextChoices):
        ENGINE = "engine"
        ESTIMATE = "estimate"

    id = models.BigAutoField(primary_key=True)
    request_id = models.UUIDField()
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.USAGE)
    seq = models.PositiveSmallIntegerField(default=0)
    organization_id = models.UUIDField()
    user_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    model = models.CharField(max_length=100)
    input = models.PositiveIntegerField()
    cached = models.PositiveIntegerField()
    output = models.PositiveIntegerField()
    cost = models.DecimalField(max_digits=20, decimal_places=10)
    outcome = models.CharField(max_length=16)
    source = models.CharField(max_length=16, choices=Source.choices)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "ledger entry"
        verbose_name_plural = "ledger entries"
        constraints = [models.UniqueConstraint(fields=["request_id", "kind", "seq"], name="one_ledger_row_per_use")]
        indexes = [models.Index(fields=["organization_id", "created_at"], name="ledger_by_organization")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.request_id}"
