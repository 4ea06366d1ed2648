-- The place of a running request is wanted by somebody else: its runner is told.
-- KEYS[1] scheduler prefix
-- ARGV    id, attempt
-- returns 'ok', 'stale' (another attempt has it) or 'unknown' (Redis lost it)
local req = p .. ':req:' .. ARGV[1]
local f = redis.call('HMGET', req, 'state', 'attempt')
if not f[1] then return 'unknown' end
if f[1] ~= 'running' or f[2] ~= ARGV[2] then return 'stale' end
redis.call('HSET', req, 'preempted', 1)
redis.call('PUBLISH', p .. ':wake', 'preempt ' .. ARGV[1])
return 'ok'
