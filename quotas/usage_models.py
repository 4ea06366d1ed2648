"""Rollups of the ledger by hour and day, and what the nightly check of them has found. All of it can be made again."""

from typing import Any

from django.db import models
from django.utils import timezone

COST: dict[str, Any] = {"max_digits": 24, "decimal_places": 10}
OF_WHOM = ("user_id", "api_key_id", "model")


class Rolled(models.Model):
    """What one caller used of one model in a stretch of time, by when the requests were accepted (UTC).

    `requests` counts those that have ended, however they did; the other columns are sums over all of their ledger rows.
    """

    id = models.BigAutoField(primary_key=True)
    organization_id = models.UUIDField()
    user_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)  # null: a session in a browser
    model = models.CharField(max_length=100)
    requests = models.BigIntegerField()
    input = models.BigIntegerField()
    cached = models.BigIntegerField()
    output = models.BigIntegerField()
    cost = models.DecimalField(**COST)

    class Meta:
        abstract = True


class UsageHour(Rolled):
    hour = models.DateTimeField()  # its beginning

    class Meta:
        verbose_name = "usage by hour"
        verbose_name_plural = "usage by hour"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "hour", *OF_WHOM], nulls_distinct=False, name="one_usage_of_an_hour"
            )
        ]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}:00 of org_{self.organization_id}"


class UsageDay(Rolled):
    day = models.DateField()

    class Meta:
        verbose_name = "usage by day"
        verbose_name_plural = "usage by day"
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "day", *OF_WHOM], nulls_distinct=False, name="one_usage_of_a_day"
            )
        ]
        indexes = [models.Index(fields=["day", "organization_id"], name="usage_of_days")]

    def __str__(self) -> str:
        return f"{self.day} of org_{self.organization_id}"


class TopSpender(UsageDay):
    """For a page of its own in the admin, with its own permission."""

    class Meta:
        proxy = True
        verbose_name = "top spender"


class UsageMark(models.Model):
    """How far the ledger is rolled up: all rows whose id is at most `ledger_id`, and no other. There is one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    ledger_id = models.BigIntegerField(default=0)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_usage_mark")]

    def __str__(self) -> str:
        return f"rolled up to {self.ledger_id}"


class UsageCheck(models.Model):
    """One comparison of ledger, rollups and the counters in Redis."""

    id = models.BigAutoField(primary_key=True)
    began_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)  # null: it runs, or was broken off
    since = models.DateField()  # days before are not compared
    organizations = models.PositiveIntegerField(default=0)
    counters = models.PositiveIntegerField(default=0)
    findings = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = "check of usage"
        verbose_name_plural = "checks of usage"

    def __str__(self) -> str:
        return f"check of {self.began_at:%Y-%m-%d %H:%M}"


class UsageFinding(models.Model):
    """Something that differed from the ledger, and was made right by it."""

    class What(models.TextChoices):
        HOURS = "hours", "usage by hour"
        DAYS = "days", "usage by day"
        COUNTER = "counter", "counter in Redis"

    class Unit(models.TextChoices):
        REQUESTS = "requests"
        TOKENS = "tokens"
        COST = "cost"

    id = models.BigAutoField(primary_key=True)
    of_check = models.ForeignKey(UsageCheck, on_delete=models.CASCADE, related_name="+", verbose_name="check")
    organization_id = models.UUIDField()
    what = models.CharField(max_length=16, choices=What.choices)
    subject = models.CharField(max_length=64, blank=True, default="")  # of a counter: org, user:<id>, key:<id>
    day = models.DateField(null=True)  # of a rollup
    unit = models.CharField(max_length=16, choices=Unit.choices)
    in_ledger = models.DecimalField(**COST)
    found = models.DecimalField(**COST)
    found_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "finding about usage"
        verbose_name_plural = "findings about usage"

    def __str__(self) -> str:
        return f"{self.what} of org_{self.organization_id}"
