-- All live leases, for choosing whose place is taken.
-- KEYS[1] scheduler prefix
-- returns {{id, expiry, lane, tenant, attempt, replica, runner, committed at, qpf, KV tokens, emitted, preemptions,
--           prefilled, read}, ...}
local flat, found = redis.call('ZRANGE', p .. ':lease', 0, -1, 'WITHSCORES'), {}
for i = 1, #flat, 2 do
  local f = redis.call('HMGET', p .. ':req:' .. flat[i], 'lane', 'tenant', 'attempt', 'replica', 'runner', 'committed', 'qpf',
    'hkv', 'emitted', 'preemptions', 'prefilled', 'read')
  table.insert(f, 1, flat[i + 1])
  table.insert(f, 1, flat[i])
  found[#found + 1] = f
end
return found
