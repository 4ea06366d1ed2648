-- Gives a running request back: to the queue at its old rank, or to the ended when it was cancelled or failed too often.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, attempt, tokens emitted, how it counts ('failed', 'preempted', '' a handover), replica to avoid ('' none)
-- returns 'queued', 'cancelled', 'failed', or 'stale' when this attempt no longer holds it
local id, how = ARGV[2], ARGV[5]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'attempt', 'lane', 'tenant', 'emitted', 'failures')
if f[1] ~= 'running' or f[2] ~= ARGV[3] then return 'stale' end
local rules = cmsgpack.unpack(ARGV[1])
local new = tonumber(ARGV[4]) - tonumber(f[5])
if new > 0 then
  charge(rules, f[3], f[4], rules.output * new)
  redis.call('HSET', req, 'emitted', ARGV[4])
end
give_back(id)
redis.call('HSET', req, 'avoid', ARGV[6])
if how == 'preempted' then redis.call('HINCRBY', req, 'preemptions', 1) end
local became = requeue_or_end(rules, id, tonumber(f[6]) + (how == 'failed' and 1 or 0), now())
wake()
return became
