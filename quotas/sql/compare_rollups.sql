-- Requests, tokens and cost of each organization on each day: of the ledger as far as it is rolled up, of the hours, and of
-- the days.
-- Parameters: since: the first day; start: its first moment; first, last: ids, from and before
WITH ledger AS (
    SELECT organization_id,
           DATE '1970-01-01' + (('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 86400000)::int
               AS day,
           count(*) FILTER (WHERE kind = 'usage') AS requests, sum(input::bigint + output) AS tokens, sum(cost) AS cost
    FROM quotas_ledgerentry
    WHERE request_id >= %(first)s AND request_id < %(last)s
      AND id <= coalesce((SELECT max(ledger_id) FROM quotas_usagemark), 0)
    GROUP BY 1, 2
), hours AS (
    SELECT organization_id, (hour AT TIME ZONE 'UTC')::date AS day, sum(requests) AS requests,
           sum(input + output) AS tokens, sum(cost) AS cost
    FROM quotas_usagehour WHERE hour >= %(start)s GROUP BY 1, 2
), days AS (
    SELECT organization_id, day, sum(requests) AS requests, sum(input + output) AS tokens, sum(cost) AS cost
    FROM quotas_usageday WHERE day >= %(since)s GROUP BY 1, 2
)
SELECT organization_id, day,
       coalesce(ledger.requests, 0), coalesce(ledger.tokens, 0), coalesce(ledger.cost, 0),
       coalesce(hours.requests, 0), coalesce(hours.tokens, 0), coalesce(hours.cost, 0),
       coalesce(days.requests, 0), coalesce(days.tokens, 0), coalesce(days.cost, 0)
FROM ledger
FULL JOIN hours USING (organization_id, day)
FULL JOIN days USING (organization_id, day)
