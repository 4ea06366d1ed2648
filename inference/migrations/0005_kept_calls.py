import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import chatsite.ids
from chatsite.append_only import append_only

DAYS = [django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(365)]


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_names"), ("inference", "0004_request_caller_id")]
    operations = [
        migrations.CreateModel(
            name="TextKeeping",
            fields=[
                (
                    "organization",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="accounts.organization",
                    ),
                ),
                (
                    "days",
                    models.PositiveSmallIntegerField(
                        default=30, help_text="Texts are deleted when they are older than this.", validators=DAYS
                    ),
                ),
                ("since", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "verbose_name": "keeping of texts",
                "verbose_name_plural": "keeping of texts",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("days__gt", 0)), name="texts_are_kept_for_days")
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptCall",
            fields=[
                ("id", models.UUIDField(default=chatsite.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ("request_id", models.UUIDField(unique=True)),
                ("user_id", models.UUIDField()),
                ("api_key_id", models.UUIDField(null=True)),
                ("model", models.CharField(max_length=100)),
                ("prompt", models.JSONField()),
                ("answer", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.organization"
                    ),
                ),
            ],
            options={
                "permissions": [("read_call", "Can read the texts of kept calls, with a reason")],
                "indexes": [models.Index(fields=["organization", "created_at"], name="kept_calls_to_forget")],
            },
        ),
        migrations.CreateModel(
            name="CallReading",
            fields=[
                ("id", models.UUIDField(default=chatsite.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ("staff_id", models.UUIDField()),
                ("staff_email", models.EmailField(max_length=254)),
                ("call_id", models.UUIDField(db_index=True)),
                ("reason", models.TextField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={"verbose_name": "reading of a call", "verbose_name_plural": "readings of calls"},
        ),
        append_only(
            "inference_callreading", "inference_call_reading", "the record of who read a call is append-only"
        ),
    ]
