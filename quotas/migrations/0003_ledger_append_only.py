from django.db import migrations

# The ledger is what bills are made of: a correction is a new row. Not even the admin or a stray query changes an old one.
FORBID = """
CREATE FUNCTION quotas_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: add a row instead';
END
$$;
CREATE TRIGGER quotas_ledger_append_only BEFORE UPDATE OR DELETE ON quotas_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION quotas_ledger_is_append_only();
"""
ALLOW = """
DROP TRIGGER quotas_ledger_append_only ON quotas_ledgerentry;
DROP FUNCTION quotas_ledger_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_plans")]
    operations = [migrations.RunSQL(FORBID, ALLOW)]
