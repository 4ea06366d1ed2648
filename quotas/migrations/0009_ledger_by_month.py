from django.db import migrations, models

from chatsite.append_only import append_only

# Months are those of the request's acceptance, which its id (UUIDv7) tells, in UTC. What belongs to no month that has a
# partition goes into the default one, and moves when its month is made: no row is ever refused.
PARTITIONED = """
ALTER TABLE quotas_ledgerentry RENAME TO quotas_ledgerentry_before;
CREATE SEQUENCE quotas_ledger_order AS bigint;
CREATE TABLE quotas_ledgerentry (
    id bigint NOT NULL DEFAULT nextval('quotas_ledger_order'),
    request_id uuid NOT NULL,
    kind varchar(16) NOT NULL CHECK (kind IN ('usage', 'correction', 'refund')),
    seq smallint NOT NULL CHECK (seq >= 0),
    organization_id uuid NOT NULL,
    user_id uuid NOT NULL,
    api_key_id uuid,
    model varchar(100) NOT NULL,
    lane varchar(16) NOT NULL DEFAULT '',
    input integer NOT NULL,
    cached integer NOT NULL,
    output integer NOT NULL,
    price bigint,
    cost numeric(20, 10) NOT NULL,
    outcome varchar(16) NOT NULL,
    source varchar(16) NOT NULL,
    queue_ms integer,
    ttft_ms integer,
    total_ms integer,
    created_at timestamptz NOT NULL,
    CONSTRAINT ledger_of_use_not_negative
        CHECK (kind <> 'usage' OR (input >= 0 AND cached >= 0 AND output >= 0 AND cost >= 0)),
    CONSTRAINT ledger_refunds_give_back CHECK (kind <> 'refund' OR (input = 0 AND output = 0 AND cost < 0)),
    CONSTRAINT one_ledger_row_per_use_key PRIMARY KEY (request_id, kind, seq)
) PARTITION BY RANGE (request_id);
ALTER SEQUENCE quotas_ledger_order OWNED BY quotas_ledgerentry.id;
CREATE INDEX ledger_of_organization_month ON quotas_ledgerentry (organization_id, request_id);
CREATE INDEX ledger_in_order ON quotas_ledgerentry (id);
CREATE TABLE quotas_ledgerentry_rest PARTITION OF quotas_ledgerentry DEFAULT;
"""

FUNCTIONS = """
CREATE FUNCTION quotas_ledger_first_id(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
-- Makes the partition of a month, with what the default one has of it. False when it is there already.
CREATE FUNCTION quotas_ledger_make_month(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    month timestamp := date_trunc('month', day::timestamp);
    name text := 'quotas_ledgerentry_' || to_char(month, 'YYYY_MM');
    low uuid := quotas_ledger_first_id(month AT TIME ZONE 'UTC');
    high uuid := quotas_ledger_first_id((month + interval '1 month') AT TIME ZONE 'UTC');
    waits boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('quotas_ledger_make_month', 0));
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE quotas_ledgerentry IN ACCESS EXCLUSIVE MODE;
    waits := EXISTS (SELECT FROM quotas_ledgerentry_rest WHERE request_id >= low AND request_id < high);
    IF waits THEN -- detached, it is an ordinary table, from which rows can be moved
        ALTER TABLE quotas_ledgerentry DETACH PARTITION quotas_ledgerentry_rest;
    END IF;
    EXECUTE format('CREATE TABLE %I PARTITION OF quotas_ledgerentry FOR VALUES FROM (%L) TO (%L)', name, low, high);
    EXECUTE format('CREATE TRIGGER quotas_ledger_not_emptied BEFORE TRUNCATE ON %I FOR EACH STATEMENT'
        ' EXECUTE FUNCTION quotas_ledger_is_append_only()', name);
    IF waits THEN
        INSERT INTO quotas_ledgerentry SELECT * FROM quotas_ledgerentry_rest WHERE request_id >= low AND request_id < high;
        DELETE FROM quotas_ledgerentry_rest WHERE request_id >= low AND request_id < high;
        ALTER TABLE quotas_ledgerentry ATTACH PARTITION quotas_ledgerentry_rest DEFAULT;
    END IF;
    RETURN true;
END
$$;
"""

MOVED = """
CREATE TRIGGER quotas_ledger_not_emptied BEFORE TRUNCATE ON quotas_ledgerentry_rest
    FOR EACH STATEMENT EXECUTE FUNCTION quotas_ledger_is_append_only();
INSERT INTO quotas_ledgerentry (id, request_id, kind, seq, organization_id, user_id, api_key_id, model, input, cached,
                                output, cost, outcome, source, created_at)
SELECT id, request_id, kind, seq, organization_id, user_id, api_key_id, model, input, cached, output, cost, outcome,
       source, created_at
FROM quotas_ledgerentry_before;
SELECT setval('quotas_ledger_order', greatest((SELECT max(id) FROM quotas_ledgerentry_before), 1));
DROP TABLE quotas_ledgerentry_before;
-- The months that there are rows of, this one and the next three.
DO $$
DECLARE
    months date[] := ARRAY(
        SELECT DISTINCT date_trunc('month', to_timestamp(
            ('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC')::date
        FROM quotas_ledgerentry_rest
        WHERE request_id >= quotas_ledger_first_id(now() - interval '10 years')
          AND request_id < quotas_ledger_first_id(now() + interval '1 month')
        UNION
        SELECT (date_trunc('month', now() AT TIME ZONE 'UTC') + ahead * interval '1 month')::date
        FROM generate_series(0, 3) AS ahead
    );
    month date;
BEGIN
    FOREACH month IN ARRAY months LOOP
        PERFORM quotas_ledger_make_month(month);
    END LOOP;
END
$$;
"""

FREE = """
DROP TRIGGER quotas_ledger_not_emptied ON quotas_ledgerentry;
DROP TRIGGER quotas_ledger_append_only ON quotas_ledgerentry;
DROP FUNCTION quotas_ledger_is_append_only();
"""
LEDGER = append_only("quotas_ledgerentry", "quotas_ledger", "the ledger is append-only: add a row instead")


class Migration(migrations.Migration):
    dependencies = [("quotas", "0008_prices")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(FREE),
                migrations.RunSQL(PARTITIONED),
                LEDGER,
                migrations.RunSQL(FUNCTIONS),
                migrations.RunSQL(MOVED),
            ],
            state_operations=[
                migrations.RemoveIndex(
                    model_name='ledgerentry',
                    name='ledger_by_organization',
                ),
                migrations.AddField(
                    model_name='ledgerentry',
                    name='lane',
                    field=models.CharField(blank=True, default='', max_length=16),
                ),
                migrations.AddField(
                    model_name='ledgerentry',
                    name='price',
                    field=models.BigIntegerField(null=True),
                ),
                migrations.AddField(
                    model_name='ledgerentry',
                    name='queue_ms',
                    field=models.IntegerField(null=True),
                ),
                migrations.AddField(
                    model_name='ledgerentry',
                    name='total_ms',
                    field=models.IntegerField(null=True),
                ),
                migrations.AddField(
                    model_name='ledgerentry',
                    name='ttft_ms',
                    field=models.IntegerField(null=True),
                ),
                migrations.AlterField(
                    model_name='ledgerentry',
                    name='cached',
                    field=models.IntegerField(),
                ),
                migrations.AlterField(
                    model_name='ledgerentry',
                    name='input',
                    field=models.IntegerField(),
                ),
                migrations.AlterField(
                    model_name='ledgerentry',
                    name='kind',
                    field=models.CharField(choices=[('usage', 'Usage'), ('correction', 'Correction'), ('refund', 'Refund')], default='usage', max_length=16),
                ),
                migrations.AlterField(
                    model_name='ledgerentry',
                    name='output',
                    field=models.IntegerField(),
                ),
                migrations.AddIndex(
                    model_name='ledgerentry',
                    index=models.Index(fields=['organization_id', 'request_id'], name='ledger_of_organization'),
                ),
            ],
        ),
    ]
