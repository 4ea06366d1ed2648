-- One request's row of usage. A second one for the same request is ignored: what was written first stands.
-- Parameters: by the names of the columns
INSERT INTO quotas_ledgerentry
    (request_id, kind, seq, organization_id, user_id, api_key_id, model, lane, input, cached, output, price, cost,
     outcome, source, queue_ms, ttft_ms, total_ms, created_at)
VALUES (%(request_id)s, %(kind)s, %(seq)s, %(organization_id)s, %(user_id)s, %(api_key_id)s, %(model)s, %(lane)s,
        %(input)s, %(cached)s, %(output)s, %(price)s, %(cost)s, %(outcome)s, %(source)s, %(queue_ms)s, %(ttft_ms)s,
        %(total_ms)s, now())
ON CONFLICT DO NOTHING
