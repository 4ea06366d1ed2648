-- Lets a request wait; idempotent by id.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, lane, tenant, weight of the tenant, input tokens, uncached tokens, KV tokens it may need,
--         deadline (ms, absolute), prefill rate (tokens/s; '' as the runners say), rank ('' now, or the one it had),
--         attempts so far, tokens emitted so far, replicas that failed it, with spaces between
-- returns 1 when it was added, 0 when it was known already
local id, lane, tenant = ARGV[2], ARGV[3], ARGV[4]
local req = p .. ':req:' .. id
if redis.call('EXISTS', req) == 1 then return 0 end
local rules = cmsgpack.unpack(ARGV[1])
local rank = ARGV[11]
if rank == '' then
  local rate, later = tonumber(ARGV[10]) or tonumber(redis.call('HGET', p .. ':pace', 'rate') or 0), 0
  if rate > 0 then later = math.min(rules.aging, 1000 * tonumber(ARGV[7]) / rate) end
  rank = exact(now() + later)
end
redis.call('HSET', req, 'state', 'queued', 'lane', lane, 'tenant', tenant, 'input', ARGV[6], 'uncached', ARGV[7],
  'kv', ARGV[8], 'deadline', ARGV[9], 'rank', rank, 'attempt', ARGV[12], 'emitted', ARGV[13], 'avoid', ARGV[14],
  'failures', 0, 'preemptions', 0)
redis.call('ZADD', p .. ':deadline', ARGV[9], id)
local weight = tonumber(ARGV[5])
enter(lane, tenant, weight)
push(rules, lane, tenant, weight, rank, id)
redis.call('PUBLISH', p .. ':wake', 'work')
return 1
