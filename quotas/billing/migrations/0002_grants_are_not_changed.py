from django.db import migrations

from chatsite.append_only import append_only

# A grant is ended, once; nothing else of it changes.
ENDED_ONLY = """
CREATE FUNCTION billing_grant_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL
       AND to_jsonb(NEW) - 'ended_at' - 'ended_by' = to_jsonb(OLD) - 'ended_at' - 'ended_by' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a grant is never changed: end it, and make another';
END
$$;
CREATE TRIGGER billing_grant_kept BEFORE UPDATE OR DELETE ON billing_grant
    FOR EACH ROW EXECUTE FUNCTION billing_grant_is_kept();
CREATE TRIGGER billing_grant_not_emptied BEFORE TRUNCATE ON billing_grant
    FOR EACH STATEMENT EXECUTE FUNCTION billing_grant_is_kept();
"""
FREE = """
DROP TRIGGER billing_grant_not_emptied ON billing_grant;
DROP TRIGGER billing_grant_kept ON billing_grant;
DROP FUNCTION billing_grant_is_kept();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_alerts_grants_refunds")]
    operations = [
        append_only("billing_refund", "billing_refund", "refunds are append-only"),
        migrations.RunSQL(ENDED_ONLY, FREE),
    ]
