-- Where a request stands.
-- KEYS[1] scheduler prefix
-- ARGV    id
-- returns {state, requests of its lane that are served before it, preemptions}
local f = redis.call('HMGET', p .. ':req:' .. ARGV[1], 'state', 'lane', 'tenant', 'preemptions')
if not f[1] then return {'unknown', 0, 0} end
if f[1] ~= 'queued' then return {f[1], 0, tonumber(f[4])} end
local lane, tenant = f[2], f[3]
local own = redis.call('ZRANK', p .. ':q:' .. lane .. ':' .. tenant, ARGV[1])
local weight, ahead, before = weight_of(lane, tenant), own, true
for _, other in ipairs(redis.call('ZRANGE', p .. ':act:' .. lane, 0, -1)) do
  if other == tenant then
    before = false
  else  -- each tenant gets its share of a turn for each turn of this one's
    local first = before and 1 or 0
    local turns = math.floor((own + first) * weight_of(lane, other) / weight)
    ahead = ahead + math.min(redis.call('ZCARD', p .. ':q:' .. lane .. ':' .. other), math.max(turns, first))
  end
end
return {f[1], ahead, tonumber(f[4])}
