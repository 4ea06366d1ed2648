-- Tells outside consumers of a request that is settled. At least once: whoever repeats its last steps tells it again.
--
-- KEYS[1]  v1:usage
-- ARGV     about how many entries are kept, then field, value, field, value ...
-- returns  the id of the entry
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 2))
