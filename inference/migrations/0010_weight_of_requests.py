from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inference", "0009_request_decision")]

    operations = [
        migrations.AddField(model_name="request", name="weight", field=models.FloatField(db_default=1.0, default=1.0)),
    ]
