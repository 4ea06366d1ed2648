-- Redis lost a request that its runner still streams, and PostgreSQL says the runner is right: lease and counts come back.
-- KEYS[1] scheduler prefix
-- ARGV    id, lane, tenant, attempt, tokens emitted, replica, runner, lease (ms), deadline (ms, absolute), input tokens
-- returns 1, or 0 when somebody else has entered it meanwhile
local p, id = KEYS[1], ARGV[1]
local req = p .. ':req:' .. id
if redis.call('EXISTS', req) == 1 then
  local f = redis.call('HMGET', req, 'state', 'attempt')
  return (f[1] == 'running' and f[2] == ARGV[4]) and 1 or 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', req, 'state', 'running', 'lane', ARGV[2], 'tenant', ARGV[3], 'attempt', ARGV[4], 'emitted', ARGV[5],
  'replica', ARGV[6], 'runner', ARGV[7], 'rank', now, 'deadline', ARGV[9], 'input', ARGV[10], 'failures', 0, 'avoid', '')
redis.call('HINCRBY', p .. ':rep:' .. ARGV[6], 'n', 1)
redis.call('ZADD', p .. ':lease', now + tonumber(ARGV[8]), id)
return 1
