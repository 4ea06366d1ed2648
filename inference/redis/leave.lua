-- A reader of a call that several may follow has gone. After the last one nobody joins any more.
-- KEYS[1] log prefix
-- ARGV    reader, time to live (s), 1 where who reads is entered again by now
-- returns the readers that are left; false when Redis lost the set, and not all who read may have entered again
local k = KEYS[1] .. ':readers'
local was_there = redis.call('SREM', k, ARGV[1])
if redis.call('SISMEMBER', k, 'closed') == 1 then return {} end
if ARGV[3] ~= '1' and (was_there == 0 or redis.call('EXISTS', k .. ':lost') == 1) then return false end
local left = redis.call('SMEMBERS', k)
if #left == 0 then redis.call('SADD', k, 'closed') end
redis.call('EXPIRE', k, ARGV[2])
return left
