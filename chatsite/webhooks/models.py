"""Where an organization wants to be told of events, and what was sent there."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.ids import new_id, public_id
from chatsite.webhooks.events import EXPLAINED, Event

MAX_URL = 500  # characters


class Endpoint(models.Model):
    """An address that is told of events. Its secret is not kept: it is derived from `salt` and the site's own key."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField("address", max_length=MAX_URL)
    events = ArrayField(models.CharField(max_length=32))
    active = models.BooleanField(default=True)
    salt = models.UUIDField(default=new_id, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "webhook"
        constraints = [
            models.UniqueConstraint(fields=["organization", "url"], name="one_webhook_of_an_address"),
            models.CheckConstraint(
                condition=models.Q(events__contained_by=[str(each) for each in EXPLAINED], events__len__gt=0),
                name="webhook_events_known",
            ),
        ]

    def __str__(self) -> str:
        return self.url

    @property
    def public_id(self) -> str:
        return public_id("hook", self.pk)


class Delivery(models.Model):
    """One event for one endpoint. It is sent again until it is taken, a few times at most."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)  # what the receiver knows it by
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=32, choices=[(each.value, each.value) for each in Event])
    body = models.TextField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(default=timezone.now)  # while it waits; of one that is being sent: when it is lost
    status = models.PositiveSmallIntegerField(null=True)  # of the last answer
    outcome = models.CharField(max_length=300, blank=True, default="")  # of the last attempt, in a sentence
    took_ms = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "delivered", "failed"]), name="delivery_state_known"
            )
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=models.Q(state="waiting"), name="deliveries_that_wait"),
            models.Index(fields=["endpoint", "-id"], name="deliveries_of_a_webhook"),
            models.Index(fields=["created_at"], name="deliveries_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.endpoint_id}"

    @property
    def public_id(self) -> str:
        return public_id("evt", self.pk)
