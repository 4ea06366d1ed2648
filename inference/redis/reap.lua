-- Takes back expired leases and ends what waited too long; at most 200 of each in a call.
-- KEYS[1] scheduler prefix
-- ARGV    most failures, '1' while the model is loading (the wait of what never ran does not run out then), the least
--         time a reclaimed request may wait (ms)
-- returns {{id, outcome}, ...}: everything that ended here and that PostgreSQL has still to hear about
local p = KEYS[1]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local woken = false

local function finish(id, req, outcome)
  redis.call('HSET', req, 'state', 'ended', 'outcome', outcome)
  redis.call('ZADD', p .. ':ended', t[1], id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':lease', '-inf', now, 'LIMIT', 0, 200)) do
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'replica', 'lane', 'rank', 'cancelled', 'failures')
  redis.call('ZREM', p .. ':lease', id)
  if f[1] then
    redis.call('HINCRBY', p .. ':rep:' .. f[1], 'n', -1)
    redis.call('HDEL', req, 'replica', 'runner')
    local failures = tonumber(f[5] or '0') + 1
    redis.call('HSET', req, 'failures', failures)
    if f[4] then
      finish(id, req, 'cancelled')
    elseif failures >= tonumber(ARGV[1]) then
      finish(id, req, 'failed')
    else
      local deadline = now + tonumber(ARGV[3])
      redis.call('HSET', req, 'state', 'queued', 'deadline', deadline)
      redis.call('ZADD', p .. ':q:' .. f[2], f[3], id)
      redis.call('ZADD', p .. ':deadline', deadline, id)
      woken = true
    end
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':deadline', '-inf', now, 'LIMIT', 0, 200)) do
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'lane', 'attempt')
  if ARGV[2] == '1' and tonumber(f[2] or '0') == 0 then
    local later = now + tonumber(ARGV[3])
    redis.call('HSET', req, 'deadline', later)
    redis.call('ZADD', p .. ':deadline', later, id)
  else
    redis.call('ZREM', p .. ':deadline', id)
    redis.call('ZREM', p .. ':q:' .. f[1], id)
    finish(id, req, 'expired')
  end
end

if woken then redis.call('PUBLISH', p .. ':wake', 'work') end
local ended = {}
for _, id in ipairs(redis.call('ZRANGE', p .. ':ended', 0, 199)) do
  ended[#ended + 1] = {id, redis.call('HGET', p .. ':req:' .. id, 'outcome') or 'failed'}
end
return ended
