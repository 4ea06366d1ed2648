-- Gives a request to one attempt, and says in which state it was before. No row: it is over, gone, or a later attempt has it.
-- Parameters: id, attempt, claim, replica, placement (why it is there, JSON)
-- A claim fences processes that live, so it does not wait for the disk: what a crash of PostgreSQL makes it forget is taken again.
WITH seen AS (
    SELECT id, status, attempt FROM inference_request WHERE id = %(id)s AND set_config('synchronous_commit', 'off', true) = 'off' FOR UPDATE
)
UPDATE inference_request AS request
SET status = 'running',
    attempt = %(attempt)s,
    claim = %(claim)s,
    replica_id = %(replica)s,
    claimed_at = coalesce(request.claimed_at, now()),
    decision = request.decision || jsonb_build_object(
        'attempts', coalesce(request.decision -> 'attempts', '[]'::jsonb) || %(placement)s::jsonb
    )
FROM seen
WHERE request.id = seen.id AND seen.status IN ('queued', 'running') AND seen.attempt < %(attempt)s
RETURNING {columns}, seen.status
