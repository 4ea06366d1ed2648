-- Notes one more reader of a call that several may follow.
-- KEYS[1] log prefix
-- ARGV    reader, time to live (s), ms for which a set that is made anew may lack readers (0: the call is new)
-- returns 1, or 0 when the last one has left before: the call is being cancelled
local k = KEYS[1] .. ':readers'
if redis.call('SISMEMBER', k, 'closed') == 1 then return 0 end
-- Redis has lost the set: others have to enter again before anybody knows who reads.
if tonumber(ARGV[3]) > 0 and redis.call('EXISTS', k) == 0 then redis.call('SET', k .. ':lost', 1, 'PX', ARGV[3]) end
redis.call('SADD', k, ARGV[1])
redis.call('EXPIRE', k, ARGV[2])
return 1
