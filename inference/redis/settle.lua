-- Forgets a request and gives back everything it held; idempotent.
-- KEYS[1] scheduler prefix
-- ARGV    id
-- returns 1 when it was known, else 0
local p, id = KEYS[1], ARGV[1]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'lane', 'replica')
redis.call('ZREM', p .. ':ended', id)
if not f[1] then return 0 end
if redis.call('ZREM', p .. ':lease', id) == 1 and f[3] then redis.call('HINCRBY', p .. ':rep:' .. f[3], 'n', -1) end
redis.call('ZREM', p .. ':q:' .. f[2], id)
redis.call('ZREM', p .. ':deadline', id)
redis.call('DEL', req)

-- The pace at which requests end, for the expected wait: a moving average of the gap between ends, in ms.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local last = redis.call('HMGET', p .. ':pace', 'last', 'gap')
if last[1] then
  local gap = math.min(now - tonumber(last[1]), 60000)
  redis.call('HSET', p .. ':pace', 'gap', 0.9 * tonumber(last[2] or gap) + 0.1 * gap)
end
redis.call('HSET', p .. ':pace', 'last', now)
for _, lane in ipairs({'enterprise', 'paid', 'free', 'batch'}) do
  if redis.call('EXISTS', p .. ':q:' .. lane) == 1 then  -- somebody waits for the slot that became free
    redis.call('PUBLISH', p .. ':wake', 'work')
    break
  end
end
return 1
