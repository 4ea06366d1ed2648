-- Gives the head of a lane to a replica: the lease, the count on the replica and the lane's clock in one step.
-- KEYS[1] scheduler prefix
-- ARGV    id, replica, the replica's slots, runner, lease (ms), cost divided by the lane's weight
-- returns the attempt's number, or 0 when it is no longer the head of its lane, or -1 when the replica is full
local p, id, replica = KEYS[1], ARGV[1], ARGV[2]
local req, rep = p .. ':req:' .. id, p .. ':rep:' .. replica
local f = redis.call('HMGET', req, 'state', 'lane', 'attempt')
if f[1] ~= 'queued' then return 0 end
local queue = p .. ':q:' .. f[2]
if redis.call('ZRANK', queue, id) ~= 0 then return 0 end
if tonumber(redis.call('HGET', rep, 'n') or '0') >= tonumber(ARGV[3]) then return -1 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local attempt = tonumber(f[3]) + 1
redis.call('ZREM', queue, id)
redis.call('ZREM', p .. ':deadline', id)
redis.call('HSET', req, 'state', 'running', 'attempt', attempt, 'replica', replica, 'runner', ARGV[4])
redis.call('HINCRBY', rep, 'n', 1)
redis.call('ZADD', p .. ':lease', now + tonumber(ARGV[5]), id)
redis.call('HINCRBYFLOAT', p .. ':lvt', f[2], ARGV[6])
return attempt
