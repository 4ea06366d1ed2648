-- Adds up anew, from its hours, each day (UTC) of an organization of which rows of the ledger came.
-- Parameters: since, upto: ids of the ledger, from behind and up to
WITH touched AS (
    SELECT DISTINCT organization_id,
           DATE '1970-01-01' + (('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 86400000)::int
               AS day
    FROM quotas_ledgerentry
    WHERE id > %(since)s AND id <= %(upto)s
)
INSERT INTO quotas_usageday AS rolled
    (organization_id, day, user_id, api_key_id, model, requests, input, cached, output, cost)
SELECT touched.organization_id, touched.day, part.user_id, part.api_key_id, part.model, sum(part.requests),
       sum(part.input), sum(part.cached), sum(part.output), sum(part.cost)
FROM touched
JOIN quotas_usagehour part
  ON part.organization_id = touched.organization_id
 AND part.hour >= touched.day::timestamp AT TIME ZONE 'UTC'
 AND part.hour < (touched.day + 1)::timestamp AT TIME ZONE 'UTC'
GROUP BY touched.organization_id, touched.day, part.user_id, part.api_key_id, part.model
ON CONFLICT (organization_id, day, user_id, api_key_id, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, cached = excluded.cached, output = excluded.output,
    cost = excluded.cost
WHERE (rolled.requests, rolled.input, rolled.cached, rolled.output, rolled.cost)
   IS DISTINCT FROM (excluded.requests, excluded.input, excluded.cached, excluded.output, excluded.cost)
