-- The end of the branch that goes through a message, by way of the newest child each time.
-- Parameters: message
WITH RECURSIVE line AS (
    SELECT %(message)s::uuid AS id, 1 AS depth
  UNION ALL
    SELECT child.id, line.depth + 1
    FROM line CROSS JOIN LATERAL (
        SELECT m.id FROM conversations_message m WHERE m.parent_id = line.id ORDER BY m.created_at DESC, m.id DESC LIMIT 1
    ) child
)
SELECT id FROM line ORDER BY depth DESC LIMIT 1
