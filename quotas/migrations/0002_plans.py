from django.db import migrations

# name, tier, tokens per minute, replies at once
PLANS = [
    ("free", "free", 20_000, 3),
    ("plus", "paid", 100_000, 8),
    ("api", "paid", 400_000, 32),
    ("enterprise", "enterprise", 2_000_000, 128),
    ("demo", "paid", 10_000_000, 128),
]
DEFAULT = "free"


def seed(apps, schema_editor):
    """Plans to start with; an admin may change them, so those that exist are left alone."""
    plan = apps.get_model("quotas", "Plan")
    for name, tier, tokens_per_minute, concurrent in PLANS:
        plan.objects.get_or_create(
            name=name,
            defaults={
                "tier": tier,
                "tokens_per_minute": tokens_per_minute,
                "concurrent": concurrent,
                "is_default": name == DEFAULT,
            },
        )


class Migration(migrations.Migration):
    dependencies = [("quotas", "0001_initial")]
    operations = [migrations.RunPython(seed, migrations.RunPython.noop)]
