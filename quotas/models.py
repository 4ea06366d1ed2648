"""Plans, who is on which, budgets, prices, stops, and the ledger of what was used."""

from decimal import Decimal
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.ids import new_id
from quotas.money import MAX_BUDGET_COST, MAX_BUDGET_TOKENS
from quotas.periods import MAX_ROLLING_DAYS
from quotas.usage_models import TopSpender, UsageCheck, UsageDay, UsageFinding, UsageHour, UsageMark

__all__ = [
    "Budget",
    "Isolation",
    "LedgerEntry",
    "Plan",
    "Price",
    "Stop",
    "Subscription",
    "Tier",
    "TopSpender",
    "UsageCheck",
    "UsageDay",
    "UsageFinding",
    "UsageHour",
    "UsageMark",
]

LEAST_WEIGHT, MOST_WEIGHT = Decimal("0.001"), Decimal(1000)
PRICE: dict[str, Any] = {
    "max_digits": 12,
    "decimal_places": 6,
    "validators": [MinValueValidator(Decimal(0), "A price is at least 0.")],
    "help_text": "Per million tokens",
}
MONTHLY_TOKENS: dict[str, Any] = {
    "null": True,
    "blank": True,
    "validators": [
        MinValueValidator(1, "At least one token, or leave it empty: then there is no such limit."),
        MaxValueValidator(MAX_BUDGET_TOKENS, f"At most {MAX_BUDGET_TOKENS:,} tokens."),
    ],
}
MONTHLY_COST: dict[str, Any] = {
    "max_digits": 12,
    "decimal_places": 2,
    "null": True,
    "blank": True,
    "validators": [
        MinValueValidator(Decimal("0.01"), "At least 0.01, or leave it empty: then there is no such limit."),
        MaxValueValidator(MAX_BUDGET_COST, f"At most {MAX_BUDGET_COST:,}."),
    ],
}
WEIGHT: dict[str, Any] = {
    "max_digits": 7,
    "decimal_places": 3,
    "default": Decimal(1),
    "db_default": Decimal(1),
    "validators": [
        MinValueValidator(LEAST_WEIGHT, f"More than 0: at least {LEAST_WEIGHT}."),
        MaxValueValidator(MOST_WEIGHT, f"At most {MOST_WEIGHT:,}."),
    ],
    "help_text": "Share of its lane while others wait there: weight 2 gets twice what weight 1 gets.",
}


def _cap(words: str) -> models.PositiveIntegerField:
    return models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1, "At least one token, or leave it empty: then the model decides.")],
        help_text=words,
    )


def _within(name: str, most: object) -> models.Q:
    """Null, or more than nothing and at most `most`."""
    return models.Q((name, None)) | models.Q((f"{name}__gt", 0), (f"{name}__lte", most))


class Tier(models.TextChoices):
    """What a plan buys in the queue; models.toml names tiers too."""

    FREE = "free"
    PAID = "paid"
    ENTERPRISE = "enterprise"


class Isolation(models.TextChoices):
    """Whose prompts an engine may have cached already when one of the organization's comes."""

    OWN = "own", "its own alone"
    SHARED = "shared", "those of all organizations that share"


class Plan(models.Model):
    """What an organization may use."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.SlugField(unique=True)
    tier = models.CharField(max_length=16, choices=Tier.choices, default=Tier.FREE)
    tokens_per_minute = models.PositiveIntegerField()
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no such limit")
    concurrent = models.PositiveIntegerField(help_text="Replies that may run at once")
    weight = models.DecimalField(**WEIGHT)
    monthly_tokens = models.PositiveBigIntegerField(**MONTHLY_TOKENS, help_text="Of a month in UTC. Empty: no limit")
    monthly_cost = models.DecimalField(**MONTHLY_COST, help_text="Of a month in UTC. Empty: no limit")
    context_tokens = _cap("Prompt and answer together, at most. Empty: as the model has it")
    output_tokens = _cap("Of one answer, at most. Empty: as the model has it")
    isolation = models.CharField(
        "cached prompts",
        max_length=16,
        choices=Isolation.choices,
        default=Isolation.OWN,
        db_default=Isolation.OWN,
        help_text="A shared cache is faster, and its timing tells whether somebody has sent the same beginning.",
    )
    is_default = models.BooleanField(default=False, help_text="Given to new organizations")
    models = ArrayField(
        models.CharField(max_length=100),
        default=list,
        db_default=[],
        blank=True,
        help_text="None chosen: all that the tier has",
    )

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
            models.CheckConstraint(
                condition=_within("monthly_tokens", MAX_BUDGET_TOKENS), name="plan_monthly_tokens_counted"
            ),
            models.CheckConstraint(
                condition=_within("monthly_cost", MAX_BUDGET_COST), name="plan_monthly_cost_counted"
            ),
            models.CheckConstraint(
                condition=(models.Q(context_tokens=None) | models.Q(context_tokens__gt=0))
                & (models.Q(output_tokens=None) | models.Q(output_tokens__gt=0)),
                name="plan_caps_positive",
            ),
            models.CheckConstraint(
                condition=models.Q(weight__gt=0, weight__lte=MOST_WEIGHT), name="plan_weight_positive"
            ),
            models.CheckConstraint(condition=models.Q(isolation__in=Isolation.values), name="plan_isolation_known"),
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


class Price(models.Model):
    """What a model's tokens cost from a moment on: one version of its price list. Never changed.

    One that is in force already is never deleted either, as ledger rows name it by its id.
    """

    class Source(models.TextChoices):
        FILE = "file", "models.toml"
        ADMIN = "admin", "the admin"

    id = models.BigAutoField(primary_key=True)
    model = models.CharField(max_length=100)  # its name: prices outlive models
    valid_from = models.DateTimeField()
    input = models.DecimalField(**PRICE)
    cached = models.DecimalField(**PRICE)
    output = models.DecimalField(**PRICE)
    source = models.CharField(max_length=16, choices=Source.choices, default=Source.ADMIN, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "valid_from"], name="one_price_at_a_time"),
            models.CheckConstraint(
                condition=models.Q(input__gte=0, cached__gte=0, output__gte=0), name="prices_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model} from {self.valid_from:%Y-%m-%d %H:%M}"


class Budget(models.Model):
    """What an organization, one of its members or one of its keys may spend in a period. Exactly one limit is set."""

    class Scope(models.TextChoices):
        ORGANIZATION = "organization"
        MEMBER = "member"
        KEY = "key", "API key"

    class Period(models.TextChoices):
        MONTH = "month", "calendar month (UTC)"
        ROLLING = "rolling", "the last days"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="budgets")
    scope = models.CharField(max_length=16, choices=Scope.choices, default=Scope.ORGANIZATION)
    subject_id = models.UUIDField(
        "member or key",
        null=True,
        blank=True,
        help_text="The id of the user or of the API key; keys that replaced one another count as one",
    )
    period = models.CharField(max_length=16, choices=Period.choices, default=Period.MONTH)
    days = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1, "At least one day."), MaxValueValidator(MAX_ROLLING_DAYS)],
        help_text=f"Of a rolling period: days of UTC, today included, at most {MAX_ROLLING_DAYS}",
    )
    limit_cost = models.DecimalField(**MONTHLY_COST)
    limit_tokens = models.PositiveBigIntegerField(**MONTHLY_TOKENS)
    hard = models.BooleanField(default=True, help_text="Refuses what would go beyond it. Else it only warns")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "scope", "subject_id", "period", "days", "hard"],
                condition=models.Q(limit_tokens=None),
                nulls_distinct=False,
                name="one_cost_budget_of_a_kind",
            ),
            models.UniqueConstraint(
                fields=["organization", "scope", "subject_id", "period", "days", "hard"],
                condition=models.Q(limit_cost=None),
                nulls_distinct=False,
                name="one_token_budget_of_a_kind",
            ),
            models.CheckConstraint(
                condition=models.Q(limit_cost__gt=0, limit_cost__lte=MAX_BUDGET_COST, limit_tokens=None)
                | models.Q(limit_tokens__gt=0, limit_tokens__lte=MAX_BUDGET_TOKENS, limit_cost=None),
                name="budget_has_one_limit",
            ),
            models.CheckConstraint(
                condition=models.Q(period="month", days=None)
                | models.Q(period="rolling", days__gte=1, days__lte=MAX_ROLLING_DAYS),
                name="budget_period_known",
            ),
            models.CheckConstraint(
                condition=models.Q(scope="organization", subject_id=None)
                | models.Q(scope__in=["member", "key"], subject_id__isnull=False),
                name="budget_subject_known",
            ),
        ]

    def __str__(self) -> str:
        return f"budget of {self.organization_id}"


class Stop(models.Model):
    """While it is there, nothing new is accepted from an organization, or from anybody. What runs goes on."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, null=True, blank=True, related_name="+", help_text="Empty: everybody"
    )
    message = models.CharField(max_length=200, blank=True, help_text="What callers are told, in a sentence")
    since = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "emergency stop"
        constraints = [
            models.UniqueConstraint(fields=["organization"], nulls_distinct=False, name="one_stop_of_each"),
        ]

    def __str__(self) -> str:
        return str(self.organization) if self.organization_id else "everybody"


class LedgerEntry(models.Model):
    """One use of tokens, for ever: no foreign keys, no personal data, never changed. Corrections are new rows.

    The table is partitioned by the month (UTC) in which the request was accepted, which its id tells; to that month
    all of its rows belong. Its key is (request_id, kind, seq); `id` only says in which order rows were written.
    """

    class Kind(models.TextChoices):
        USAGE = "usage"
        CORRECTION = "correction"
        REFUND = "refund"

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
    lane = models.CharField(max_length=16, blank=True, default="")
    input = models.IntegerField()  # with `cached` and `output`: below zero where a correction takes tokens back
    cached = models.IntegerField()
    output = models.IntegerField()
    price = models.BigIntegerField(null=True)  # the id of the Price; null: of models.toml, before there were versions
    cost = models.DecimalField(max_digits=20, decimal_places=10)
    outcome = models.CharField(max_length=16)
    source = models.CharField(max_length=16, choices=Source.choices)
    queue_ms = models.IntegerField(null=True)  # from acceptance to the first claim, to the first token, to the end
    ttft_ms = models.IntegerField(null=True)
    total_ms = models.IntegerField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "ledger entry"
        verbose_name_plural = "ledger entries"
        constraints = [models.UniqueConstraint(fields=["request_id", "kind", "seq"], name="one_ledger_row_per_use")]
        indexes = [models.Index(fields=["organization_id", "request_id"], name="ledger_of_organization")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.request_id}"
