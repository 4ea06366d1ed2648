from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inference", "0005_kept_calls")]
    operations = [
        migrations.AddField(model_name="request", name="bills_partial", field=models.BooleanField(default=True)),
    ]
