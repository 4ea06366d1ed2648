-- A request that is accepted: it waits in the queue from now on.
INSERT INTO inference_request (
    id, organization_id, user_id, api_key_id, model_id, lane, weight, owner_kind, owner_id, caller_id, status, sampling,
    cache_salt, prompt_tokens, bills_prompt, bills_partial, base_tokens, base_chars, created_at, deadline, decision,
    attempt, finish_reason, error_code, error_message, cached_tokens, output_tokens
) VALUES (
    %(id)s, %(organization_id)s, %(user_id)s, %(api_key_id)s, %(model_id)s, %(lane)s, %(weight)s, %(owner_kind)s,
    %(owner_id)s, %(caller_id)s, 'queued', %(sampling)s, %(cache_salt)s, %(prompt_tokens)s, %(bills_prompt)s,
    %(bills_partial)s, %(base_tokens)s, %(base_chars)s, %(created_at)s, %(deadline)s, %(decision)s, 0, '', '', '', 0, 0
)
