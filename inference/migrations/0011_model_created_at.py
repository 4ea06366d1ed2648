import django.utils.timezone
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("inference", "0010_weight_of_requests")]

    operations = [
        migrations.AddField(
            model_name="model",
            name="created_at",
            field=models.DateTimeField(db_default=Now(), default=django.utils.timezone.now, editable=False),
        ),
    ]
