-- Tokens and turns of a branch that the model saw for its last reply: its first `left_out` messages were left out.
-- Parameters: conversation, message that ends the branch
WITH RECURSIVE branch AS (
    SELECT m.parent_id, m.tokens, m.left_out, 1 AS depth
    FROM conversations_message m
    WHERE m.conversation_id = %(conversation)s AND m.id = %(leaf)s
  UNION ALL
    SELECT m.parent_id, m.tokens, b.left_out, b.depth + 1
    FROM branch b JOIN conversations_message m ON m.id = b.parent_id
)
SELECT coalesce(sum(tokens), 0), count(*)
FROM branch
WHERE tokens > 0 AND depth <= (SELECT max(depth) FROM branch) - left_out
