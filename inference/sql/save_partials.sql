-- Saves what the streams of one runner added since the last time, in one statement.
-- Parameters: eight arrays of equal length: request, claim, attempt, from token, to token, from character, ids, text
-- A row is inserted only where the claim is live. One with the same start is from a save whose answer was lost; it grows.
INSERT INTO inference_partial (request_id, attempt, from_token, to_token, from_char, ids, text, created_at)
SELECT new.request_id, new.attempt, new.from_token, new.to_token, new.from_char, new.ids, new.text, now()
FROM unnest(%s::uuid[], %s::uuid[], %s::smallint[], %s::int[], %s::int[], %s::int[], %s::bytea[], %s::text[])
     AS new (request_id, claim, attempt, from_token, to_token, from_char, ids, text)
JOIN inference_request AS request
  ON request.id = new.request_id AND request.claim = new.claim AND request.status = 'running'
ON CONFLICT (request_id, from_token) DO UPDATE
  SET to_token = excluded.to_token, ids = excluded.ids, text = excluded.text
  WHERE excluded.to_token > inference_partial.to_token
