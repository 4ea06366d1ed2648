-- Renews the leases of one runner, and charges output as it was generated.
-- KEYS[1] scheduler prefix
-- ARGV    rules, then id, attempt, tokens emitted for each request
-- returns for each request: 'ok', 'cancelled' or 'preempted' (renewed, but somebody asked to stop it, or wants its place),
--         'stale' (another attempt has it) or 'unknown' (Redis lost it)
local rules, answers = cmsgpack.unpack(ARGV[1]), {}
local expiry = now() + rules.lease

local function renew(id, attempt, emitted)
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'state', 'attempt', 'cancelled', 'preempted', 'lane', 'tenant', 'emitted', 'base',
    'input', 'kv', 'hkv', 'replica', 'qpf', 'prefilled')
  if not f[1] then return 'unknown' end
  if f[1] ~= 'running' or f[2] ~= attempt then return 'stale' end
  redis.call('ZADD', p .. ':lease', expiry, id)
  local known = charge_output(rules, id, f[5], f[6], tonumber(f[7]), tonumber(emitted))
  if known > tonumber(f[8]) and f[14] ~= '1' then prefilled(id, f[12], f[13]) end
  local grown = math.max(tonumber(f[10]), tonumber(f[9]) + known) - tonumber(f[11])
  if grown > 0 then
    redis.call('HINCRBY', req, 'hkv', grown)
    redis.call('HINCRBY', p .. ':rep:' .. f[12], 'kv', grown)
  end
  return f[3] and 'cancelled' or f[4] and 'preempted' or 'ok'
end

for i = 2, #ARGV, 3 do answers[#answers + 1] = renew(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return answers
