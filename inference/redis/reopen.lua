-- Redis lost a request that its runner still streams, and PostgreSQL says the runner is right: lease and counts come back.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, lane, tenant, weight of the tenant, attempt, replica, runner, input tokens, KV tokens it may need,
--         tokens emitted, tokens still to be prefilled (0 after the first token), deadline (ms, absolute), rank
-- returns 1 (also when that attempt holds it already), or 0 when somebody else has entered it meanwhile
local id, lane, tenant = ARGV[2], ARGV[3], ARGV[4]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'attempt')
if f[1] then return (f[1] == 'running' and f[2] == ARGV[6]) and 1 or 0 end
local input, kv, emitted = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
redis.call('HSET', req, 'lane', lane, 'tenant', tenant, 'input', input, 'uncached', ARGV[12], 'kv', kv,
  'deadline', ARGV[13], 'rank', ARGV[14], 'emitted', emitted, 'avoid', '', 'failures', 0, 'preemptions', 0)
enter(lane, tenant, tonumber(ARGV[5]))
advance(':' .. lane, tenant, 0)
local replica, uncached, context = ARGV[7], tonumber(ARGV[12]), math.max(kv, input + emitted)
for field, more in pairs({qpf = uncached, kv = context, n = 1}) do
  redis.call('HINCRBY', p .. ':rep:' .. replica, field, more)
end
hold(cmsgpack.unpack(ARGV[1]), id, lane, replica, ARGV[8], uncached, context, emitted, ARGV[6], now())
return 1
