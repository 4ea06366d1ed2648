-- Replaces a request's reservation by what it used, and frees its place. Only the first call counts.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     request id, tokens used, how long to remember that it is settled (ms)
-- returns  {1 if this call counted, tokens used now, replies running, time now (ms)}
--
-- What it used beyond its reservation is taken all the same: the bucket may be overdrawn by one minute's worth. A reservation
-- that expired was given back already, so then all that was used is taken. Keys: reserve.lua.
local prefix = KEYS[1]
local id, tokens, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket, live, reserved = prefix .. ':bucket', prefix .. ':live', prefix .. ':reserved'
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local state = redis.call('HMGET', bucket, 'used', 'at', 'limit')
local used, limit = tonumber(state[1] or 0), tonumber(state[3] or 0)
local elapsed = math.max(0, now - tonumber(state[2] or now))
used = math.max(0, used - elapsed * limit / 60000)

local counted = 0
if redis.call('SET', prefix .. ':settled:' .. id, 1, 'NX', 'PX', remember) then
  counted = 1
  used = math.max(0, used - tonumber(redis.call('HGET', reserved, id) or 0) + tokens)
  if limit > 0 then used = math.min(used, 2 * limit) end
  redis.call('ZREM', live, id)
  redis.call('HDEL', reserved, id)
end
redis.call('HSET', bucket, 'used', string.format('%.6f', used), 'at', now)
redis.call('PEXPIRE', bucket, 180000)
return {counted, math.ceil(used), redis.call('ZCARD', live), now}
