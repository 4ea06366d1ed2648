-- Gives a running request back: to the queue at its old rank, or to the ended when it was cancelled or failed too often.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, attempt, tokens emitted, how it counts ('failed', 'preempted', '' a handover), replica that failed it ('' none)
-- returns 'queued', 'cancelled', 'failed', or 'stale' when this attempt no longer holds it
local id, how = ARGV[2], ARGV[5]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'attempt', 'lane', 'tenant', 'emitted', 'failures', 'avoid')
if f[1] ~= 'running' or f[2] ~= ARGV[3] then return 'stale' end
local rules = cmsgpack.unpack(ARGV[1])
local new = tonumber(ARGV[4]) - tonumber(f[5])
if new > 0 then
  charge(rules, f[3], f[4], rules.output * new)
  redis.call('HSET', req, 'emitted', ARGV[4])
end
give_back(id)
local avoid = f[7] or ''  -- replicas that failed it, with spaces between
if ARGV[6] ~= '' and not string.find(' ' .. avoid .. ' ', ' ' .. ARGV[6] .. ' ', 1, true) then
  redis.call('HSET', req, 'avoid', avoid == '' and ARGV[6] or avoid .. ' ' .. ARGV[6])
end
if how == 'preempted' then redis.call('HINCRBY', req, 'preemptions', 1) end
local became = requeue_or_end(rules, id, tonumber(f[6]) + (how == 'failed' and 1 or 0), now())
wake()
return became
