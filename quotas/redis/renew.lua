-- Keeps reservations alive, and makes again those that are missing (Redis lost its data, or they had expired).
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     time to live (ms), tokens to reserve where one is missing, request id, request id, ...
-- returns  {how many were missing, time now (ms)}
--
-- A missing one is made even beyond the limits: it was admitted before. It counts in its buckets where they are known,
-- else in the plan's. One that is settled stays settled. Keys: buckets.lua.
local ttl, tokens = tonumber(ARGV[1]), tonumber(ARGV[2])

local missing = 0
for index = 3, #ARGV do
  local id = ARGV[index]
  if redis.call('ZADD', live, 'XX', 'CH', now + ttl, id) == 0 and not redis.call('ZSCORE', live, id)
      and redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    missing = missing + 1
    hold(id, tokens, redis.call('GET', prefix .. ':expired:' .. id) or 'plan', now + ttl)
    redis.call('DEL', prefix .. ':expired:' .. id)
  end
end
save()
return {missing, now}
