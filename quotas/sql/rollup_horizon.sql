-- The last id that was taken from the ledger's sequence, and the transactions that may still write a row with it or an
-- earlier one: a writer locks the table before it takes an id, and until its row can be seen. The id is read first.
-- Parameters: none
WITH taken AS MATERIALIZED (
    SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS id FROM quotas_ledger_order
)
SELECT taken.id, ARRAY(
    SELECT virtualtransaction FROM pg_locks
    WHERE taken.id IS NOT NULL
      AND locktype = 'relation' AND relation = 'quotas_ledgerentry'::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND granted AND pid <> pg_backend_pid()
)
FROM taken
