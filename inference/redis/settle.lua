-- PostgreSQL has a request's end: charges its last tokens, gives back everything, forgets it; idempotent.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, tokens emitted in all (0 not known), the length of its answer ('' says nothing of others; negative where
--         a limit cut it short)
-- returns 1 when it was known, else 0
local id = ARGV[2]
local req = p .. ':req:' .. id
local f = redis.call('HMGET', req, 'state', 'lane', 'tenant', 'emitted', 'replica', 'qpf', 'hkv', 'read')
if not f[1] then return 0 end
local new = tonumber(ARGV[3]) - tonumber(f[4])
if new > 0 then
  local rules = cmsgpack.unpack(ARGV[1])
  charge(rules, f[2], f[3], rules.output * new)
end
if f[1] == 'running' then
  unload(id, f[2], f[5], f[6], f[7], f[8])
elseif f[1] == 'queued' then
  redis.call('ZREM', p .. ':deadline', id)
  remove(f[2], f[3], id)
else
  redis.call('ZREM', p .. ':ended', id)
end
redis.call('DEL', req)
exit(f[2], f[3])
if ARGV[4] ~= '' then
  local outputs = p .. ':outputs:' .. f[3]
  redis.call('LPUSH', outputs, ARGV[4])
  redis.call('LTRIM', outputs, 0, 99)
  redis.call('EXPIRE', outputs, 2592000)  -- 30 days
end

-- The pace at which requests end, for the expected wait: a moving average of the gap between ends, in ms.
local moment = now()
local last = redis.call('HMGET', p .. ':pace', 'last', 'gap')
local pace = {'last', moment}
if last[1] then
  local gap = math.min(moment - tonumber(last[1]), 60000)
  pace[3], pace[4] = 'gap', 0.9 * tonumber(last[2] or gap) + 0.1 * gap
end
redis.call('HSET', p .. ':pace', unpack(pace))
wake()
return 1
