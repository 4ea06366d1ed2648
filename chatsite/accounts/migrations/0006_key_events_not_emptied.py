from django.db import migrations

from chatsite.append_only import not_emptied


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_api_keys")]
    operations = [not_emptied("accounts_keyevent", "accounts_key_event")]
