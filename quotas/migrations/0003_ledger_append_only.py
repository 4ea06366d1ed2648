from django.db import migrations

from chatsite.append_only import append_only

# The ledger is what bills are made of: a correction is a new row.
LEDGER = append_only("quotas_ledgerentry", "quotas_ledger", "the ledger is append-only: add a row instead")


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_plans")]
    operations = [LEDGER]
