-- Counts anew, up to a row of the ledger, each hour of an organization of which rows came since another row.
-- Parameters: since, upto: ids of the ledger, from behind and up to
WITH touched AS (
    SELECT DISTINCT organization_id,
           to_timestamp(('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 3600000 * 3600) AS hour
    FROM quotas_ledgerentry
    WHERE id > %(since)s AND id <= %(upto)s
)
INSERT INTO quotas_usagehour AS rolled
    (organization_id, hour, user_id, api_key_id, model, requests, input, cached, output, cost)
SELECT touched.organization_id, touched.hour, entry.user_id, entry.api_key_id, entry.model,
       count(*) FILTER (WHERE entry.kind = 'usage'), sum(entry.input::bigint), sum(entry.cached::bigint),
       sum(entry.output::bigint), sum(entry.cost)
FROM touched
JOIN quotas_ledgerentry entry
  ON entry.organization_id = touched.organization_id
 AND entry.request_id >= quotas_ledger_first_id(touched.hour)
 AND entry.request_id < quotas_ledger_first_id(touched.hour + interval '1 hour')
 AND entry.id <= %(upto)s
GROUP BY touched.organization_id, touched.hour, entry.user_id, entry.api_key_id, entry.model
ON CONFLICT (organization_id, hour, user_id, api_key_id, model) DO UPDATE
SET requests = excluded.requests, input = excluded.input, cached = excluded.cached, output = excluded.output,
    cost = excluded.cost
WHERE (rolled.requests, rolled.input, rolled.cached, rolled.output, rolled.cost)
   IS DISTINCT FROM (excluded.requests, excluded.input, excluded.cached, excluded.output, excluded.cost)
