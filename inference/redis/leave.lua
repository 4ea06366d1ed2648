-- A reader of a call that several may follow has gone. After the last one nobody joins any more.
-- KEYS[1] log prefix
-- ARGV    reader, time to live (s)
-- returns the readers that are left
local k = KEYS[1] .. ':readers'
redis.call('SREM', k, ARGV[1])
if redis.call('SISMEMBER', k, 'closed') == 1 then return {} end
local left = redis.call('SMEMBERS', k)
if #left == 0 then redis.call('SADD', k, 'closed') end
redis.call('EXPIRE', k, ARGV[2])
return left
