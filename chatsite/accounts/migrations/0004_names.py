from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_verified_addresses")]
    operations = [migrations.AlterModelOptions(name="apikey", options={"verbose_name": "API key"})]
