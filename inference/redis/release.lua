-- Gives a running request back: to the queue at its old rank, or to the ended when it was cancelled or failed too often.
-- KEYS[1] scheduler prefix
-- ARGV    id, attempt, tokens emitted, '1' when the attempt failed ('0' hands over), replica to avoid ('' none),
--         most failures, the least time it may wait again (ms)
-- returns 'queued', 'cancelled', 'failed', or 'stale' when this attempt no longer holds it
local p, id = KEYS[1], ARGV[1]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'attempt', 'replica', 'lane', 'rank', 'deadline', 'cancelled', 'failures')
if f[1] ~= 'running' or f[2] ~= ARGV[2] then return 'stale' end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREM', p .. ':lease', id)
redis.call('HINCRBY', p .. ':rep:' .. f[3], 'n', -1)
redis.call('HDEL', req, 'replica', 'runner')
redis.call('HSET', req, 'emitted', ARGV[3], 'avoid', ARGV[5])
local failures = tonumber(f[8] or '0') + tonumber(ARGV[4])
local outcome
if f[7] then outcome = 'cancelled' elseif failures >= tonumber(ARGV[6]) then outcome = 'failed' end
if outcome then
  redis.call('HSET', req, 'state', 'ended', 'outcome', outcome)
  redis.call('ZADD', p .. ':ended', t[1], id)
  return outcome
end
local deadline = math.max(tonumber(f[6]), now + tonumber(ARGV[7]))
if tonumber(ARGV[3]) > 0 then deadline = now + tonumber(ARGV[7]) end
redis.call('HSET', req, 'state', 'queued', 'failures', failures, 'deadline', deadline)
redis.call('ZADD', p .. ':q:' .. f[4], f[5], id)
redis.call('ZADD', p .. ':deadline', deadline, id)
redis.call('PUBLISH', p .. ':wake', 'work')
return 'queued'
