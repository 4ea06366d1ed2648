-- What was spent on each day (UTC, days since 1970), by when its request was accepted.
-- Parameters: organization; first and last: ids, from and before; user, keys: null for all
SELECT ('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 86400000 AS day,
       sum(input::bigint + output), sum(cost)
FROM quotas_ledgerentry
WHERE organization_id = %(organization)s
  AND request_id >= %(first)s AND request_id < %(last)s
  AND (%(user)s::uuid IS NULL OR user_id = %(user)s)
  AND (%(keys)s::uuid[] IS NULL OR api_key_id = ANY(%(keys)s))
GROUP BY day
