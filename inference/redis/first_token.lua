-- A request's prefill is over: its share of the replica's queued prefill is given back. Again is nothing.
-- KEYS[1] scheduler prefix
-- ARGV    id, attempt
-- returns 'ok', 'stale' (another attempt has it) or 'unknown' (Redis lost it)
local f = redis.call('HMGET', p .. ':req:' .. ARGV[1], 'state', 'attempt', 'replica', 'qpf')
if not f[1] then return 'unknown' end
if f[1] ~= 'running' or f[2] ~= ARGV[2] then return 'stale' end
prefilled(ARGV[1], f[3], f[4])
wake()  -- a gate may have opened
return 'ok'
