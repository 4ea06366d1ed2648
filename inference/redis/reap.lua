-- Takes back expired leases and ends what waited too long; at most the rules' limit of each in a call.
-- KEYS[1] scheduler prefix
-- ARGV    rules, '1' while the model is loading (the wait of what never ran does not run out then)
-- returns {{id, outcome}, ...}: what ended here and PostgreSQL has still to hear about, the oldest of it
local rules, moment = cmsgpack.unpack(ARGV[1]), now()
local last, changed = rules.limit - 1, false

local longest = moment + rules.lease  -- what ends later than that was leased before the clock was set back
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':lease', '(' .. longest, '+inf', 'LIMIT', 0, rules.limit)) do
  redis.call('ZADD', p .. ':lease', longest, id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':lease', '-inf', moment, 'LIMIT', 0, rules.limit)) do
  local failures = tonumber(redis.call('HGET', p .. ':req:' .. id, 'failures')) + 1
  give_back(id)
  requeue_or_end(rules, id, failures, moment)
  changed = true
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':deadline', '-inf', moment, 'LIMIT', 0, rules.limit)) do
  local f = redis.call('HMGET', p .. ':req:' .. id, 'lane', 'tenant', 'attempt')
  if ARGV[2] == '1' and f[3] == '0' then
    redis.call('HSET', p .. ':req:' .. id, 'deadline', moment + rules.again)
    redis.call('ZADD', p .. ':deadline', moment + rules.again, id)
  else
    redis.call('ZREM', p .. ':deadline', id)
    remove(f[1], f[2], id)
    finish(id, 'expired', moment)
    changed = true
  end
end

for lane in pairs(LANES) do  -- tenants whose debt the floor has caught up with
  if redis.call('EXISTS', p .. ':owing:' .. lane) == 1 then
    redis.call('ZREMRANGEBYSCORE', p .. ':owing:' .. lane, '-inf', exact(floor_of(':' .. lane)))
  end
end

if changed then wake() end
local ended = {}
for _, id in ipairs(redis.call('ZRANGE', p .. ':ended', 0, last)) do
  ended[#ended + 1] = {id, redis.call('HGET', p .. ':req:' .. id, 'outcome')}
end
return ended
