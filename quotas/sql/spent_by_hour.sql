-- What a member, or some keys, have spent in each hour (UTC) in which they have spent anything.
-- Parameters: organization; first and last: ids, from and before; user, keys: null for all
SELECT sum(cost)
FROM quotas_ledgerentry
WHERE organization_id = %(organization)s
  AND request_id >= %(first)s AND request_id < %(last)s
  AND (%(user)s::uuid IS NULL OR user_id = %(user)s)
  AND (%(keys)s::uuid[] IS NULL OR api_key_id = ANY(%(keys)s))
GROUP BY ('x' || translate(left(request_id::text, 13), '-', ''))::bit(48)::bigint / 3600000
