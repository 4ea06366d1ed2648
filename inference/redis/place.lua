-- Where a request stands.
-- KEYS[1] scheduler prefix
-- ARGV    id
-- returns {state, place in its lane from 1 (0 when it does not wait), ms between ends ('' while unknown)}
local p, id = KEYS[1], ARGV[1]
local f = redis.call('HMGET', p .. ':req:' .. id, 'state', 'lane')
if not f[1] then return {'unknown', 0, ''} end
local rank = f[1] == 'queued' and redis.call('ZRANK', p .. ':q:' .. f[2], id)
return {f[1], rank and rank + 1 or 0, redis.call('HGET', p .. ':pace', 'gap') or ''}
