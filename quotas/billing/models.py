"""What goes with the money: alerts that were sent, temporary grants, why something was paid back, unusual spending."""

from django.db import models
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.ids import new_id
from chatsite.reasons import MOST_REASON
from quotas.budgets import Unit
from quotas.models import MONTHLY_COST, MONTHLY_TOKENS
from quotas.money import MAX_BUDGET_COST, MAX_BUDGET_TOKENS

UNITS = [(each.value, each.value) for each in Unit]


class LedgerPlace(models.Model):
    """How far into the ledger a task has looked.

    Rows get their numbers before they are committed, so what came in the run before is looked at once more.
    """

    task = models.CharField(max_length=50, primary_key=True)
    last = models.BigIntegerField(default=0)  # the newest row of the last run
    before = models.BigIntegerField(default=0)  # and of the one before it
    at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.task} at {self.last}"


class BudgetAlert(models.Model):
    """A budget has reached a part of its limit. One row for each budget, period and threshold.

    A limit that was changed is another one. Figures are tokens, or 1e-10 of the currency.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    scope = models.CharField(max_length=16)  # plan, organization, user, key
    subject = models.CharField(max_length=50)  # org, user:<id>, key:<id>
    unit = models.CharField(max_length=8, choices=UNITS)
    days = models.PositiveSmallIntegerField()  # of a rolling period; 0: the calendar month
    hard = models.BooleanField()
    limit = models.BigIntegerField()
    period_start = models.DateField()  # of a rolling period: the day on which it was reached
    threshold = models.PositiveSmallIntegerField()  # percent
    spent = models.BigIntegerField()
    title = models.CharField(max_length=400)
    mail_due = models.BooleanField(default=False)  # False: sent, or a higher one has told it
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "organization", "scope", "subject", "unit", "days", "hard", "limit", "period_start", "threshold",
                ],
                name="one_alert_of_each_threshold",
            )
        ]  # fmt: skip
        indexes = [
            models.Index(fields=["created_at"], condition=models.Q(mail_due=True), name="alerts_to_mail"),
        ]

    def __str__(self) -> str:
        return f"{self.threshold} % of {self.subject} in {self.organization_id}"


class Grant(models.Model):
    """More than the plan and the hard budgets of an organization allow in each of their periods, until a day.

    Never changed; it can be ended before its day.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="grants")
    tokens = models.PositiveBigIntegerField(**MONTHLY_TOKENS)
    cost = models.DecimalField(**MONTHLY_COST)
    last_day = models.DateField(help_text="It holds until the end of this day (UTC)")
    reason = models.CharField(max_length=MOST_REASON)
    granted_by_id = models.UUIDField(null=True, editable=False)
    granted_by = models.EmailField(editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True, editable=False)
    ended_by = models.EmailField(blank=True, default="", editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(tokens__gt=0, tokens__lte=MAX_BUDGET_TOKENS, cost=None)
                | models.Q(cost__gt=0, cost__lte=MAX_BUDGET_COST, tokens=None),
                name="grant_of_tokens_or_cost",
            ),
        ]
        indexes = [
            models.Index(
                fields=["organization", "last_day"], condition=models.Q(ended_at=None), name="grants_that_hold"
            )
        ]

    def __str__(self) -> str:
        return f"grant to {self.organization_id} until {self.last_day}"


class Refund(models.Model):
    """Why a row of the ledger gives something back, and who gave it. For ever: no foreign keys, never changed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request_id = models.UUIDField()
    seq = models.PositiveSmallIntegerField()  # of the row in the ledger
    organization_id = models.UUIDField()
    amount = models.DecimalField(max_digits=20, decimal_places=10)
    reason = models.CharField(max_length=MOST_REASON)
    staff_id = models.UUIDField()
    staff_email = models.EmailField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request_id", "seq"], name="one_reason_of_a_refund")]
        indexes = [models.Index(fields=["organization_id", "id"], name="refunds_of_organization")]

    def __str__(self) -> str:
        return f"refund of {self.request_id}"


class SpendingFlag(models.Model):
    """A key, or a member, has spent in an hour ten times what is usual for it. At most one a day of each."""

    class Scope(models.TextChoices):
        KEY = "key", "API key"
        MEMBER = "member"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    scope = models.CharField(max_length=16, choices=Scope.choices)
    subject_id = models.UUIDField()  # of the user, or of the chain of keys that replaced one another
    spent = models.DecimalField(max_digits=20, decimal_places=10)  # in the past 60 minutes
    usual = models.DecimalField(max_digits=20, decimal_places=10)  # in an hour
    paused = models.BooleanField()  # then; its owner may have resumed it since
    mail_due = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "unusual spending"
        verbose_name_plural = "unusual spending"
        indexes = [
            models.Index(fields=["organization", "scope", "subject_id", "-created_at"], name="flags_of_a_spender"),
            models.Index(fields=["created_at"], condition=models.Q(mail_due=True), name="flags_to_mail"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.subject_id}"


class Statement(Organization):
    """An organization, in the admin's list of statements."""

    class Meta:
        proxy = True
