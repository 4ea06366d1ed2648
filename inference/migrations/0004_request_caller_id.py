from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inference", "0003_bills_prompt")]
    operations = [
        migrations.AddField(model_name="request", name="caller_id", field=models.UUIDField(null=True)),
    ]
