-- The lengths of an organization's latest answers: tokens, negative where a limit cut the answer short.
-- KEYS[1] scheduler prefix
-- ARGV    tenant
-- returns {length, ...}
return redis.call('LRANGE', KEYS[1] .. ':outputs:' .. ARGV[1], 0, -1)
