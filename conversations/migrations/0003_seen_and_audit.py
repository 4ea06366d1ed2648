from django.db import migrations

from chatsite.append_only import append_only

# Replies that were there before there was an unread mark count as seen.
SEEN = """
UPDATE conversations_conversation SET seen_request = leaf.request_id
FROM conversations_message leaf WHERE leaf.id = active_leaf_id
"""
# Who read what, and why.
READINGS = append_only(
    "conversations_textaccess",
    "conversations_text_access",
    "the record of who read a conversation is append-only",
)


class Migration(migrations.Migration):
    dependencies = [("conversations", "0002_page")]
    operations = [migrations.RunSQL(SEEN, migrations.RunSQL.noop), READINGS]
