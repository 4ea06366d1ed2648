-- What each member and key has spent in requests that were accepted since a moment.
-- Parameters: organization; first: the smallest id of the moment
SELECT user_id, api_key_id, sum(cost)
FROM quotas_ledgerentry
WHERE organization_id = %(organization)s AND request_id >= %(first)s
GROUP BY user_id, api_key_id
