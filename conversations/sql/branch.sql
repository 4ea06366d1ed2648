-- A message and its ancestors, nearest first.
-- Parameters: conversation, message to begin with, how many at most
WITH RECURSIVE branch AS (
    SELECT m.*, 1 AS depth
    FROM conversations_message m
    WHERE m.conversation_id = %(conversation)s AND m.id = %(leaf)s
  UNION ALL
    SELECT m.*, b.depth + 1
    FROM branch b JOIN conversations_message m ON m.id = b.parent_id
    WHERE b.depth < %(limit)s
)
SELECT * FROM branch ORDER BY depth
