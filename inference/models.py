"""Models, their replicas, requests, and the partial text of replies that still run."""

from decimal import Decimal

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from chatsite.accounts.models import Organization
from chatsite.ids import new_id
from chatsite.status import TransitionTable
from inference.protocol import Refusal
from quotas.models import Tier


class Model(models.Model):
    """A language model that models.toml names. One that is gone from the file is disabled, never deleted."""

    name = models.CharField(primary_key=True, max_length=100)
    title = models.CharField(max_length=150)
    description = models.CharField(max_length=200, blank=True, default="", db_default="")  # one line, for menus
    context_length = models.PositiveIntegerField()
    path = models.CharField(max_length=500, blank=True, help_text="Folder of the tokenizer and chat template")
    engine_model = models.CharField(max_length=200, blank=True)
    system_prompt = models.TextField(blank=True)
    tiers = ArrayField(models.CharField(max_length=16, choices=Tier.choices))
    fallback = models.CharField(max_length=100, blank=True)
    reasoning_open = models.CharField(max_length=50, blank=True)
    reasoning_close = models.CharField(max_length=50, blank=True)
    price_input = models.DecimalField(max_digits=12, decimal_places=6, help_text="Per million tokens")
    price_cached = models.DecimalField(max_digits=12, decimal_places=6)
    price_output = models.DecimalField(max_digits=12, decimal_places=6)
    position = models.PositiveIntegerField(default=0, help_text="Order in menus; the first is the default")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, db_default=Now(), editable=False)

    class Meta:
        ordering = ["position", "name"]

    def __str__(self) -> str:
        return self.title or self.name


class Replica(models.Model):
    """One engine that serves a model. Its state at this moment is in Redis."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="replicas")
    url = models.URLField(max_length=300)
    managed = models.BooleanField(default=False, help_text="Started by this installation, which restarts it")
    enabled = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "url"], name="one_replica_per_url")]

    def __str__(self) -> str:
        return f"{self.model_id} at {self.url}"


class RequestStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SHED = "shed"


class Lane(models.TextChoices):
    ENTERPRISE = "enterprise"
    PAID = "paid"
    FREE = "free"
    BATCH = "batch"


class Request(models.Model):
    """One lease from acceptance to settlement: place in the queue, reservation, share of a replica, place in a text."""

    TRANSITIONS = TransitionTable(
        RequestStatus,
        {
            "queued": ["running", "cancelled", "expired", "shed", "failed"],
            "running": ["queued", "succeeded", "failed", "cancelled"],
            "succeeded": [],
            "failed": [],
            "cancelled": [],
            "expired": [],
            "shed": [],
        },
    )

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+")
    lane = models.CharField(max_length=16, choices=Lane.choices)
    weight = models.FloatField(
        default=1.0, db_default=1.0
    )  # of the organization within the lane, by its plan at that time
    owner_kind = models.CharField(max_length=32)  # a key of settings.REQUEST_OWNERS
    owner_id = models.UUIDField(db_index=True)
    caller_id = models.UUIDField(null=True)  # the process without which nobody waits (inference.presence)
    status = models.CharField(max_length=16, choices=RequestStatus.choices, default=RequestStatus.QUEUED)
    sampling = models.JSONField()
    cache_salt = models.CharField(max_length=64)
    prompt_tokens = models.PositiveIntegerField()
    bills_prompt = models.BooleanField(
        default=True, db_default=True
    )  # of several answers to one prompt, the first does
    bills_partial = models.BooleanField(
        default=True, db_default=True
    )  # whether a part is worth something, should the rest fail
    base_tokens = models.PositiveIntegerField(default=0)  # of the owner's text before this request (continue)
    base_chars = models.PositiveIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    claim = models.UUIDField(null=True)
    replica = models.ForeignKey(Replica, null=True, on_delete=models.SET_NULL, related_name="+")
    finish_reason = models.CharField(max_length=16, blank=True)
    error_code = models.CharField(max_length=64, blank=True)
    error_message = models.CharField(max_length=500, blank=True)
    cached_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    deadline = models.DateTimeField()  # of the wait in the queue
    claimed_at = models.DateTimeField(null=True)  # the first time
    first_token_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    # What was predicted (`predicted`, `x`), and of each attempt where it went, why, and what else there was
    decision = models.JSONField(default=dict, db_default={})
    released_at = models.DateTimeField(null=True)  # scheduler and quota have both confirmed

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(status__in=RequestStatus.values), name="request_status_known"),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=models.Q(released_at=None), name="requests_to_release"),
            models.Index(fields=["organization", "-created_at"], name="requests_by_organization"),
        ]

    def __str__(self) -> str:
        return f"req_{self.id} {self.status}"

    @property
    def billed_prompt(self) -> int:
        """Prompt tokens that count against quotas and bills, once there is an answer."""
        return self.prompt_tokens if self.bills_prompt else 0

    # No columns, but what this object's holder knows of its end: what the ledger says; and of one that was refused
    billed_cost: Decimal | None = None
    refusal: Refusal | None = None


class Partial(models.Model):
    """Tokens of a running reply, saved each second. Positions count from the start of the owner's text."""

    id = models.BigAutoField(primary_key=True)
    request_id = models.UUIDField()  # no constraint: one deleted conversation must not fail the others' rows
    attempt = models.PositiveSmallIntegerField()
    from_token = models.PositiveIntegerField()
    to_token = models.PositiveIntegerField()
    from_char = models.PositiveIntegerField()
    ids = models.BinaryField()  # unsigned 32-bit, little-endian
    text = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["request_id", "from_token"], name="one_partial_per_start")]

    def __str__(self) -> str:
        return f"tokens {self.from_token} to {self.to_token} of {self.request_id}"


class TextKeeping(models.Model):
    """An organization that asked for the texts of its stateless calls to be kept. Without a row nothing is."""

    organization = models.OneToOneField(Organization, on_delete=models.CASCADE, primary_key=True, related_name="+")
    days = models.PositiveSmallIntegerField(
        default=30,
        validators=[MinValueValidator(1), MaxValueValidator(365)],
        help_text="Texts are deleted when they are older than this.",
    )
    since = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "keeping of texts"
        verbose_name_plural = "keeping of texts"
        constraints = [models.CheckConstraint(condition=models.Q(days__gt=0), name="texts_are_kept_for_days")]

    def __str__(self) -> str:
        return f"{self.organization}: {self.days} days"


class KeptCall(models.Model):
    """What one answer of the OpenAI-compatible API was asked, and what it said."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    request_id = models.UUIDField(unique=True)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="+")
    user_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    model = models.CharField(max_length=100)
    prompt = models.JSONField()  # [{"role", "content"}, ...], a text, or token ids
    answer = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        permissions = [("read_call", "Can read the texts of kept calls, with a reason")]
        indexes = [models.Index(fields=["organization", "created_at"], name="kept_calls_to_forget")]

    def __str__(self) -> str:
        return f"call_{self.id}"


class CallReading(models.Model):
    """Somebody of the staff has read a kept call, and why. For ever: no foreign keys, never changed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    staff_id = models.UUIDField()
    staff_email = models.EmailField()
    call_id = models.UUIDField(db_index=True)
    reason = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "reading of a call"
        verbose_name_plural = "readings of calls"

    def __str__(self) -> str:
        return f"{self.staff_email} read call_{self.call_id}"


class SchedulerTuning(models.Model):
    """What the admin has changed of the scheduler's settings: one row, or none."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    values = models.JSONField(default=dict)  # nested as in SchedulerSettings, what differs from the defaults
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "scheduler settings"
        verbose_name_plural = "scheduler settings"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_row_of_scheduler_settings")]

    def __str__(self) -> str:
        return "Scheduler settings"
