-- The ids of a message and its ancestors, oldest first, and how many characters each has.
-- Parameters: conversation, leaf (the message to end with), how many at most
WITH RECURSIVE branch AS (
    SELECT m.id, m.parent_id, 1 AS depth, char_length(m.content) AS length
    FROM conversations_message m
    WHERE m.conversation_id = %(conversation)s AND m.id = %(leaf)s
  UNION ALL
    SELECT m.id, m.parent_id, b.depth + 1, char_length(m.content)
    FROM branch b JOIN conversations_message m ON m.id = b.parent_id
    WHERE b.depth < %(limit)s
)
SELECT id, length FROM branch ORDER BY depth DESC
