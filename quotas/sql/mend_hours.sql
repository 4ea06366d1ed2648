-- One day of an organization, by hour, up to a row of the ledger; its rows are not there any more.
-- Parameters: organization; first, last: ids, from and before; upto: the row's id
INSERT INTO quotas_usagehour (organization_id, hour, user_id, api_key_id, model, requests, input, cached, output, cost)
SELECT organization_id,
       to_timestamp(('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 3600000 * 3600) AS hour,
       user_id, api_key_id, model, count(*) FILTER (WHERE kind = 'usage'), sum(input::bigint), sum(cached::bigint),
       sum(output::bigint), sum(cost)
FROM quotas_ledgerentry
WHERE organization_id = %(organization)s AND request_id >= %(first)s AND request_id < %(last)s AND id <= %(upto)s
GROUP BY organization_id, hour, user_id, api_key_id, model
