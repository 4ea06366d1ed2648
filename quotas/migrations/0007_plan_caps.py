from decimal import Decimal
from importlib import import_module

import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models

PLANS = import_module("quotas.migrations.0002_plans").PLANS
# monthly tokens, context, output; the demo plan has no such limits
CAPS = {
    "free": (3_000_000, 16_384, 2_048),
    "plus": (60_000_000, 65_536, 8_192),
    "api": (1_000_000_000, None, None),
}


def seed(apps, schema_editor):
    """Of the plans to start with; one whose tokens an admin has changed is left alone."""
    plan = apps.get_model("quotas", "Plan")
    for name, _, tokens_per_minute, _ in PLANS:
        if name in CAPS:
            monthly_tokens, context_tokens, output_tokens = CAPS[name]
            found = plan.objects.filter(name=name, tokens_per_minute=tokens_per_minute, monthly_tokens=None)
            found.update(monthly_tokens=monthly_tokens, context_tokens=context_tokens, output_tokens=output_tokens)


class Migration(migrations.Migration):
    dependencies = [("quotas", "0006_ledger_not_emptied")]
    operations = [
        migrations.AddField(
            model_name='plan',
            name='context_tokens',
            field=models.PositiveIntegerField(blank=True, help_text='Prompt and answer together, at most. Empty: as the model has it', null=True, validators=[django.core.validators.MinValueValidator(1, 'At least one token, or leave it empty: then the model decides.')]),
        ),
        migrations.AddField(
            model_name='plan',
            name='isolation',
            field=models.CharField(choices=[('own', 'its own alone'), ('shared', 'those of all organizations that share')], default='own', help_text='A shared cache is faster, and its timing tells whether somebody has sent the same beginning.', max_length=16, verbose_name='cached prompts'),
        ),
        migrations.AddField(
            model_name='plan',
            name='models',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), blank=True, default=list, help_text='None chosen: all that the tier has', size=None),
        ),
        migrations.AddField(
            model_name='plan',
            name='monthly_cost',
            field=models.DecimalField(blank=True, decimal_places=2, help_text='Of a month in UTC. Empty: no limit', max_digits=12, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0.01'), 'At least 0.01, or leave it empty: then there is no such limit.'), django.core.validators.MaxValueValidator(Decimal('900000'), 'At most 900,000.')]),
        ),
        migrations.AddField(
            model_name='plan',
            name='monthly_tokens',
            field=models.PositiveBigIntegerField(blank=True, help_text='Of a month in UTC. Empty: no limit', null=True, validators=[django.core.validators.MinValueValidator(1, 'At least one token, or leave it empty: then there is no such limit.'), django.core.validators.MaxValueValidator(9007199254740991, 'At most 9,007,199,254,740,991 tokens.')]),
        ),
        migrations.AddField(
            model_name='plan',
            name='output_tokens',
            field=models.PositiveIntegerField(blank=True, help_text='Of one answer, at most. Empty: as the model has it', null=True, validators=[django.core.validators.MinValueValidator(1, 'At least one token, or leave it empty: then the model decides.')]),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(('monthly_tokens', None), models.Q(('monthly_tokens__gt', 0), ('monthly_tokens__lte', 9007199254740991)), _connector='OR'), name='plan_monthly_tokens_counted'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(('monthly_cost', None), models.Q(('monthly_cost__gt', 0), ('monthly_cost__lte', Decimal('900000'))), _connector='OR'), name='plan_monthly_cost_counted'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('context_tokens', None), ('context_tokens__gt', 0), _connector='OR'), models.Q(('output_tokens', None), ('output_tokens__gt', 0), _connector='OR')), name='plan_caps_positive'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(('isolation__in', ['own', 'shared'])), name='plan_isolation_known'),
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
