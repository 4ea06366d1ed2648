-- Somebody asked to stop a request. One that waits is taken out of the queue and is among the ended.
-- KEYS[1] scheduler prefix
-- ARGV    id, '1' to end it only if it waits
-- returns 'queued' (it waited; it is ended now), 'running' (its runner was told, unless only waiting was to be ended), 'ended'
--         or 'unknown'
local id = ARGV[1]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'lane', 'tenant')
if ARGV[2] == '1' and f[1] ~= 'queued' then return f[1] or 'unknown' end
if not f[1] then
  redis.call('PUBLISH', p .. ':wake', 'cancel ' .. id)  -- Redis may have lost it; a runner may have it in memory
  return 'unknown'
end
if f[1] == 'running' then
  redis.call('HSET', req, 'cancelled', 1)
  redis.call('PUBLISH', p .. ':wake', 'cancel ' .. id)
elseif f[1] == 'queued' then
  redis.call('ZREM', p .. ':deadline', id)
  remove(f[2], f[3], id)
  finish(id, 'cancelled', now())
  wake()  -- a lane that was waited for may have gone
end
return f[1]
