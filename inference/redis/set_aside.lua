-- Takes a running request out of the scheduler that has not begun: it waits elsewhere, and is enqueued again.
-- KEYS[1] scheduler prefix
-- ARGV    id, attempt
-- returns 1, or 0 when this attempt no longer holds it
--
-- As `settle` of one that emitted nothing, but for the pace, as nothing has ended.
local id = ARGV[1]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'attempt', 'lane', 'tenant', 'replica', 'qpf', 'hkv', 'read')
if f[1] ~= 'running' or f[2] ~= ARGV[2] then return 0 end
unload(id, f[3], f[5], f[6], f[7], f[8])
redis.call('DEL', req)
exit(f[3], f[4])
wake()
return 1
