from importlib import import_module

from django.db import migrations, models

PLANS = import_module("quotas.migrations.0002_plans").PLANS
REQUESTS = {"free": 60, "plus": 300, "api": 3_000, "enterprise": 20_000}  # the demo plan has no such limit


def seed(apps, schema_editor):
    """Of the plans to start with; one whose tokens an admin has changed is left alone."""
    plan = apps.get_model("quotas", "Plan")
    for name, _, tokens_per_minute, _ in PLANS:
        if name in REQUESTS:
            found = plan.objects.filter(name=name, tokens_per_minute=tokens_per_minute, requests_per_minute=None)
            found.update(requests_per_minute=REQUESTS[name])


class Migration(migrations.Migration):
    dependencies = [("quotas", "0004_names")]
    operations = [
        migrations.AddField(
            model_name="plan",
            name="requests_per_minute",
            field=models.PositiveIntegerField(blank=True, help_text="Empty: no such limit", null=True),
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="plan",
            constraint=models.CheckConstraint(
                condition=models.Q(("requests_per_minute", None), ("requests_per_minute__gt", 0), _connector="OR"),
                name="plan_requests_positive",
            ),
        ),
    ]
