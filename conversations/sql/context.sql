-- What a prompt needs of a message and its ancestors, oldest first. Text of the far ones is left out: most do not fit.
-- Parameters: conversation, message to begin with, how many of the nearest come with their text
WITH RECURSIVE branch AS (
    SELECT m.id, m.parent_id, m.role, m.status, m.tokens, m.content, 1 AS depth
    FROM conversations_message m
    WHERE m.conversation_id = %(conversation)s AND m.id = %(leaf)s
  UNION ALL
    SELECT m.id, m.parent_id, m.role, m.status, m.tokens, m.content, b.depth + 1
    FROM branch b JOIN conversations_message m ON m.id = b.parent_id
)
SELECT id, role, status, tokens, btrim(content, E' \t\r\n') = '' AS blank,
       CASE WHEN depth <= %(texts)s THEN content END AS content
FROM branch ORDER BY depth DESC
