from decimal import Decimal

import chatsite.ids
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("quotas", "0009_ledger_by_month")]
    operations = [
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.UUIDField(default=chatsite.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('organization', 'Organization'), ('member', 'Member'), ('key', 'API key')], default='organization', max_length=16)),
                ('subject_id', models.UUIDField(blank=True, help_text='The id of the user or of the API key; keys that replaced one another count as one', null=True, verbose_name='member or key')),
                ('period', models.CharField(choices=[('month', 'calendar month (UTC)'), ('rolling', 'the last days')], default='month', max_length=16)),
                ('days', models.PositiveSmallIntegerField(blank=True, help_text='Of a rolling period: days of UTC, today included, at most 90', null=True, validators=[django.core.validators.MinValueValidator(1, 'At least one day.'), django.core.validators.MaxValueValidator(90)])),
                ('limit_cost', models.DecimalField(blank=True, decimal_places=2, max_digits=12, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0.01'), 'At least 0.01, or leave it empty: then there is no such limit.'), django.core.validators.MaxValueValidator(Decimal('900000'), 'At most 900,000.')])),
                ('limit_tokens', models.PositiveBigIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1, 'At least one token, or leave it empty: then there is no such limit.'), django.core.validators.MaxValueValidator(9007199254740991, 'At most 9,007,199,254,740,991 tokens.')])),
                ('hard', models.BooleanField(default=True, help_text='Refuses what would go beyond it. Else it only warns')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('changed_at', models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.AddField(
            model_name='budget',
            name='organization',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='budgets', to='accounts.organization'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(condition=models.Q(('limit_tokens', None)), fields=('organization', 'scope', 'subject_id', 'period', 'days', 'hard'), name='one_cost_budget_of_a_kind', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(condition=models.Q(('limit_cost', None)), fields=('organization', 'scope', 'subject_id', 'period', 'days', 'hard'), name='one_token_budget_of_a_kind', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('limit_cost__gt', 0), ('limit_cost__lte', Decimal('900000')), ('limit_tokens', None)), models.Q(('limit_cost', None), ('limit_tokens__gt', 0), ('limit_tokens__lte', 9007199254740991)), _connector='OR'), name='budget_has_one_limit'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('days', None), ('period', 'month')), models.Q(('days__gte', 1), ('days__lte', 90), ('period', 'rolling')), _connector='OR'), name='budget_period_known'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('scope', 'organization'), ('subject_id', None)), models.Q(('scope__in', ['member', 'key']), ('subject_id__isnull', False)), _connector='OR'), name='budget_subject_known'),
        ),
        migrations.CreateModel(
            name='Stop',
            fields=[
                ('id', models.UUIDField(default=chatsite.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('message', models.CharField(blank=True, help_text='What callers are told, in a sentence', max_length=200)),
                ('since', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'emergency stop',
            },
        ),
        migrations.AddField(
            model_name='stop',
            name='organization',
            field=models.ForeignKey(blank=True, help_text='Empty: everybody', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.organization'),
        ),
        migrations.AddConstraint(
            model_name='stop',
            constraint=models.UniqueConstraint(fields=('organization',), name='one_stop_of_each', nulls_distinct=False),
        ),
    ]
