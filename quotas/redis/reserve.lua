-- Reserves tokens and a place among the replies that may run at once. Idempotent by request.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     request id, tokens, time to live (ms), tokens per minute, replies at once
-- returns  {verdict, tokens used now, replies running, ms to wait, time now (ms)}
--          verdict 0 reserved (now or before), 1 not enough tokens, 2 too many replies
--
-- Keys, all under the prefix:
--   :bucket    HASH  used (tokens taken; it drains by the limit per minute), at (ms of the last change), limit
--   :live      ZSET  request id -> ms at which its reservation expires
--   :reserved  HASH  request id -> tokens reserved
--   :settled:<request id>  kept for a while, so that what comes late counts nothing twice
local prefix = KEYS[1]
local id, tokens, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, concurrent = tonumber(ARGV[4]), tonumber(ARGV[5])
local bucket, live, reserved = prefix .. ':bucket', prefix .. ':live', prefix .. ':reserved'
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local state = redis.call('HMGET', bucket, 'used', 'at')
local used = tonumber(state[1] or 0)
local elapsed = math.max(0, now - tonumber(state[2] or now))
used = math.max(0, math.min(used, 2 * limit) - elapsed * limit / 60000)

for _, expired in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', now)) do
  if expired ~= id then
    used = math.max(0, used - tonumber(redis.call('HGET', reserved, expired) or 0))
    redis.call('ZREM', live, expired)
    redis.call('HDEL', reserved, expired)
  end
end

local known = redis.call('EXISTS', prefix .. ':settled:' .. id) == 1
if redis.call('ZSCORE', live, id) then
  known = true
  redis.call('ZADD', live, 'GT', now + ttl, id)
end
local running = redis.call('ZCARD', live)
local verdict, wait = 0, 0
if not known then
  if used + tokens > limit then
    verdict, wait = 1, math.ceil((used + tokens - limit) * 60000 / limit)
  elseif running >= concurrent then
    verdict = 2
  else
    used, running = used + tokens, running + 1
    redis.call('ZADD', live, now + ttl, id)
    redis.call('HSET', reserved, id, tokens)
  end
end
redis.call('HSET', bucket, 'used', string.format('%.6f', used), 'at', now, 'limit', limit)

-- An organization that goes quiet leaves nothing behind: an overdrawn bucket is full again after two minutes.
redis.call('PEXPIRE', bucket, 180000)
for _, key in ipairs({live, reserved}) do
  if redis.call('PTTL', key) < ttl + 180000 then redis.call('PEXPIRE', key, ttl + 180000) end
end
return {verdict, math.ceil(used), running, wait, now}
