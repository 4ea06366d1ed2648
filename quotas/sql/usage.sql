-- What was used in a span: rollups up to a row of the ledger, and the ledger behind that row. What else is in the braces
-- is chosen by quotas/usage.py.
-- Parameters: upto: the row; organization, user (null: all); start, end, and first, last: the same as ids, all from and
-- before
WITH parts AS (
    SELECT {of_rollup} AS name, requests, input, cached, output, cost
    FROM {rollup}
    WHERE organization_id = %(organization)s AND {time} >= %(start)s AND {time} < %(end)s
      AND (%(user)s::uuid IS NULL OR user_id = %(user)s)
    UNION ALL
    SELECT {of_ledger}, CASE WHEN kind = 'usage' THEN 1 ELSE 0 END, input, cached, output, cost
    FROM quotas_ledgerentry
    WHERE id > %(upto)s AND organization_id = %(organization)s
      AND request_id >= %(first)s AND request_id < %(last)s
      AND (%(user)s::uuid IS NULL OR user_id = %(user)s)
)
SELECT name, sum(requests)::bigint, sum(input)::bigint, sum(cached)::bigint, sum(output)::bigint, sum(cost), false
FROM parts GROUP BY name
UNION ALL -- how far the rollups are in these very sums: the reading is good when that is `upto`
SELECT NULL, coalesce(max(ledger_id), 0), 0, 0, 0, 0, true FROM quotas_usagemark
