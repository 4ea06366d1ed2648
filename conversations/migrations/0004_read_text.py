from django.db import migrations

MAY_READ = ("read_text", "Can read what was said in conversations, with a reason")


class Migration(migrations.Migration):
    dependencies = [("conversations", "0003_seen_and_audit")]
    operations = [
        migrations.AlterModelOptions(name="conversation", options={"permissions": [MAY_READ]}),
        migrations.AlterModelOptions(name="textaccess", options={"verbose_name": "reading"}),
    ]
