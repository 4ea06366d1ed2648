from django.db import migrations

NAMES = {"verbose_name": "ledger entry", "verbose_name_plural": "ledger entries"}


class Migration(migrations.Migration):
    dependencies = [("quotas", "0003_ledger_append_only")]
    operations = [migrations.AlterModelOptions(name="ledgerentry", options=NAMES)]
