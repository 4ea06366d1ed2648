from django.db import migrations

# Replies that were there before there was an unread mark count as seen.
SEEN = """
UPDATE conversations_conversation SET seen_request = leaf.request_id
FROM conversations_message leaf WHERE leaf.id = active_leaf_id
"""
# Who read what, and why, is not to be changed by anybody, the admin included.
FORBID = """
CREATE FUNCTION conversations_text_access_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the record of who read a conversation is append-only';
END
$$;
CREATE TRIGGER conversations_text_access_append_only BEFORE UPDATE OR DELETE ON conversations_textaccess
    FOR EACH ROW EXECUTE FUNCTION conversations_text_access_is_append_only();
"""
ALLOW = """
DROP TRIGGER conversations_text_access_append_only ON conversations_textaccess;
DROP FUNCTION conversations_text_access_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("conversations", "0002_page")]
    operations = [migrations.RunSQL(SEEN, migrations.RunSQL.noop), migrations.RunSQL(FORBID, ALLOW)]
