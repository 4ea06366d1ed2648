-- Tells readers that PostgreSQL has the whole message; the log lives on for a while. Idempotent.
-- KEYS[1] log prefix
-- ARGV    time to live (s), how it ended (JSON)
-- returns 1
local p = KEYS[1]
local last = redis.call('XREVRANGE', p .. ':out', '+', '-', 'COUNT', 1)
local tokens = last[1] and string.match(last[1][1], '^(%d+)-') or '0'
redis.pcall('XADD', p .. ':out', tokens .. '-1000', 'e', '1', 'r', ARGV[2])
redis.call('HSET', p .. ':meta', 'claim', 'closed')
for _, key in ipairs({':meta', ':out'}) do redis.call('EXPIRE', p .. key, ARGV[1]) end
redis.call('DEL', p .. ':prompt', p .. ':missing')
return 1
