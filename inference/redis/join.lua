-- Notes one more reader of a call that several may follow.
-- KEYS[1] log prefix
-- ARGV    reader, time to live (s)
-- returns 1, or 0 when the last one has left before: the call is being cancelled
local k = KEYS[1] .. ':readers'
if redis.call('SISMEMBER', k, 'closed') == 1 then return 0 end
redis.call('SADD', k, ARGV[1])
redis.call('EXPIRE', k, ARGV[2])
return 1
