-- One request's ledger row. A second one for the same request is ignored: what was written first stands.
-- Parameters: by the names of the columns
INSERT INTO quotas_ledgerentry
    (request_id, kind, seq, organization_id, user_id, api_key_id, model, input, cached, output, cost, outcome, source, created_at)
VALUES (%(request_id)s, %(kind)s, %(seq)s, %(organization_id)s, %(user_id)s, %(api_key_id)s, %(model)s, %(input)s,
        %(cached)s, %(output)s, %(cost)s, %(outcome)s, %(source)s, now())
ON CONFLICT DO NOTHING
