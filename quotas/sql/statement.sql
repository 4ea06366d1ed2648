-- What an organization used in a period, a line for each model, member, key, kind of row, price list and lane.
-- Parameters: organization; first and last: ids of requests, from and before
SELECT kind, model, lane = 'batch' AS batch, user_id, api_key_id, price, count(*) AS entries,
       count(*) FILTER (WHERE kind = 'usage' AND source = 'estimate') AS estimated,
       sum(input::bigint) AS input, sum(cached::bigint) AS cached, sum(output::bigint) AS output, sum(cost) AS cost
FROM quotas_ledgerentry
WHERE organization_id = %(organization)s AND request_id >= %(first)s AND request_id < %(last)s
GROUP BY kind, model, lane = 'batch', user_id, api_key_id, price
ORDER BY model, kind DESC, user_id, api_key_id NULLS FIRST, price NULLS FIRST, batch
