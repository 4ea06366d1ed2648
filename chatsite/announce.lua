-- Tells every page of a user that something has changed.
-- KEYS[1]: prefix of the user, such as v1:{u:<user id>}
-- ARGV: what has changed (a UUID), length of the stream, seconds that it is kept
-- Returns the id of the entry.
local key = KEYS[1] .. ':notices'
local entry = redis.call('XADD', key, 'MAXLEN', '~', ARGV[2], '*', 'c', ARGV[1])
redis.call('EXPIRE', key, ARGV[3])
return entry
