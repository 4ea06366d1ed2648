from django.db import migrations

from chatsite.append_only import not_emptied


class Migration(migrations.Migration):
    dependencies = [("quotas", "0005_requests_per_minute")]
    operations = [not_emptied("quotas_ledgerentry", "quotas_ledger")]
