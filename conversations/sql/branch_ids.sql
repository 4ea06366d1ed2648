-- The ids of a message and its ancestors, oldest first.
-- Parameters: conversation, leaf (the message to end with), how many at most
WITH RECURSIVE branch AS (
    SELECT m.id, m.parent_id, 1 AS depth
    FROM conversations_message m
    WHERE m.conversation_id = %(conversation)s AND m.id = %(leaf)s
  UNION ALL
    SELECT m.id, m.parent_id, b.depth + 1
    FROM branch b JOIN conversations_message m ON m.id = b.parent_id
    WHERE b.depth < %(limit)s
)
SELECT id FROM branch ORDER BY depth DESC
