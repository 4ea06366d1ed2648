-- Conversations of somebody with a message that matches, last used first, each with an excerpt of its newest such message.
-- Walks from the newest conversation on, and ends with the limit.
-- Parameters: user, organization, known (conversations to leave out), words, pattern (of LIKE), ahead and length (of the
-- excerpt, in characters), limit
SELECT c.id, c.title, hit.excerpt
FROM conversations_conversation c
CROSS JOIN LATERAL (
    SELECT substr(
        m.content, greatest(1, position(lower(%(words)s) IN lower(m.content)) - %(ahead)s), %(length)s
    ) AS excerpt
    FROM conversations_message m
    WHERE m.conversation_id = c.id AND m.content ILIKE %(pattern)s
    ORDER BY m.created_at DESC
    LIMIT 1
) hit
WHERE c.user_id = %(user)s AND c.organization_id = %(organization)s AND NOT c.id = ANY(%(known)s)
ORDER BY c.updated_at DESC, c.id DESC
LIMIT %(limit)s
