from django.db import migrations

from chatsite.append_only import not_emptied


class Migration(migrations.Migration):
    dependencies = [("conversations", "0005_share_snapshot")]
    operations = [not_emptied("conversations_textaccess", "conversations_text_access")]
