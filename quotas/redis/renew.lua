-- Keeps reservations alive, and makes again those that are missing (Redis lost its data, or they had expired).
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     time to live (ms), tokens to reserve where one is missing, request id, request id, ...
-- returns  {how many were missing, time now (ms)}
--
-- A missing one is made even beyond the limits: it was admitted before. One that is settled stays settled. Keys: reserve.lua.
local prefix = KEYS[1]
local ttl, tokens = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket, live, reserved = prefix .. ':bucket', prefix .. ':live', prefix .. ':reserved'
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local missing = 0
for index = 3, #ARGV do
  local id = ARGV[index]
  if redis.call('ZADD', live, 'XX', 'CH', now + ttl, id) == 0 and not redis.call('ZSCORE', live, id)
      and redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    missing = missing + 1
    redis.call('ZADD', live, now + ttl, id)
    redis.call('HSET', reserved, id, tokens)
  end
end
if missing > 0 and tokens > 0 then
  redis.call('HINCRBYFLOAT', bucket, 'used', missing * tokens)
  redis.call('HSETNX', bucket, 'at', now)
  redis.call('PEXPIRE', bucket, 180000)
end
for _, key in ipairs({live, reserved}) do
  if redis.call('PTTL', key) < ttl + 180000 then redis.call('PEXPIRE', key, ttl + 180000) end
end
return {missing, now}
