-- One day of an organization, from its hours; its rows are not there any more.
-- Parameters: organization, day, start: the day's first moment
INSERT INTO quotas_usageday (organization_id, day, user_id, api_key_id, model, requests, input, cached, output, cost)
SELECT organization_id, %(day)s, user_id, api_key_id, model, sum(requests), sum(input), sum(cached), sum(output), sum(cost)
FROM quotas_usagehour
WHERE organization_id = %(organization)s AND hour >= %(start)s AND hour < %(start)s + interval '1 day'
GROUP BY organization_id, user_id, api_key_id, model
