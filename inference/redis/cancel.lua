-- Somebody asked to stop a request. One that waits is taken out of the queue and is among the ended.
-- KEYS[1] scheduler prefix
-- ARGV    id
-- returns 'queued' (it waited; it is ended now), 'running' (its runner was told), 'ended' or 'unknown'
local p, id = KEYS[1], ARGV[1]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'lane')
if not f[1] then
  redis.call('PUBLISH', p .. ':wake', 'cancel ' .. id)  -- Redis may have lost it; a runner may have it in memory
  return 'unknown'
end
if f[1] == 'ended' then return 'ended' end
redis.call('HSET', req, 'cancelled', 1)
if f[1] == 'running' then
  redis.call('PUBLISH', p .. ':wake', 'cancel ' .. id)
  return 'running'
end
local t = redis.call('TIME')
redis.call('ZREM', p .. ':q:' .. f[2], id)
redis.call('ZREM', p .. ':deadline', id)
redis.call('HSET', req, 'state', 'ended', 'outcome', 'cancelled')
redis.call('ZADD', p .. ':ended', t[1], id)
return 'queued'
