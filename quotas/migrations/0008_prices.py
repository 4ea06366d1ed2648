from decimal import Decimal

import django.core.validators
import django.utils.timezone
from django.db import migrations, models


# Ledger rows name a price by its id: it never changes, and stays once it is in force.
KEEP = """
CREATE FUNCTION quotas_price_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'a price is never changed: add another';
    ELSIF TG_OP = 'TRUNCATE' OR OLD.valid_from <= now() THEN
        RAISE EXCEPTION 'a price that is in force stays: add another';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER quotas_price_stays BEFORE UPDATE OR DELETE ON quotas_price
    FOR EACH ROW EXECUTE FUNCTION quotas_price_stays();
CREATE TRIGGER quotas_price_not_emptied BEFORE TRUNCATE ON quotas_price
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_price_stays();
"""
ALLOW = """
DROP TRIGGER quotas_price_not_emptied ON quotas_price;
DROP TRIGGER quotas_price_stays ON quotas_price;
DROP FUNCTION quotas_price_stays();
"""


class Migration(migrations.Migration):
    dependencies = [("quotas", "0007_plan_caps")]
    operations = [
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('model', models.CharField(max_length=100)),
                ('valid_from', models.DateTimeField()),
                ('input', models.DecimalField(decimal_places=6, help_text='Per million tokens', max_digits=12, validators=[django.core.validators.MinValueValidator(Decimal('0'), 'A price is at least 0.')])),
                ('cached', models.DecimalField(decimal_places=6, help_text='Per million tokens', max_digits=12, validators=[django.core.validators.MinValueValidator(Decimal('0'), 'A price is at least 0.')])),
                ('output', models.DecimalField(decimal_places=6, help_text='Per million tokens', max_digits=12, validators=[django.core.validators.MinValueValidator(Decimal('0'), 'A price is at least 0.')])),
                ('source', models.CharField(choices=[('file', 'models.toml'), ('admin', 'the admin')], default='admin', editable=False, max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.UniqueConstraint(fields=('model', 'valid_from'), name='one_price_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.CheckConstraint(condition=models.Q(('cached__gte', 0), ('input__gte', 0), ('output__gte', 0)), name='prices_not_negative'),
        ),
        migrations.RunSQL(KEEP, ALLOW),
    ]
