-- Who is next: lanes by clock, in them tenants by virtual time, in them requests by rank.
-- KEYS[1] scheduler prefix
-- ARGV    rules, how many of each lane, then the replicas' ids
-- returns {{id, lane, tenant, input, uncached, KV tokens, attempt, emitted, preemptions, rank, deadline, avoid,
--           1 when it is its turn}, ...}, {{qpf, kv, n, capkv, capn, rate, open} of each replica}, lane waited for ('' none)
local rules, k = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2])
local lanes, heads, waited_for = waiting_lanes(), {}, ''

local function add(id, turn)
  local f = redis.call('HMGET', p .. ':req:' .. id, 'lane', 'tenant', 'input', 'uncached', 'kv', 'attempt', 'emitted',
    'preemptions', 'rank', 'deadline', 'avoid')
  f[5] = tostring(math.max(tonumber(f[5]), tonumber(f[3]) + tonumber(f[7])))
  table.insert(f, 1, id)
  f[13] = turn and 1 or 0
  heads[#heads + 1] = f
end

for _, each in ipairs(lanes) do
  local lane, left = each[1], k
  local blocking = waits_for(rules, lanes, lane)
  if waited_for == '' then waited_for = blocking end
  local tenants = k > 0 and redis.call('ZRANGE', p .. ':act:' .. lane, 0, k - 1) or {}
  local queues, last = {}, #tenants >= k and 0 or k - 1
  for i, tenant in ipairs(tenants) do queues[i] = redis.call('ZRANGE', p .. ':q:' .. lane .. ':' .. tenant, 0, last) end
  for depth = 1, k do  -- the first of each tenant, then the second of each, ...
    for i, tenant in ipairs(tenants) do
      local id = queues[i][depth]
      if id and left > 0 then
        add(id, blocking == '' and depth == 1 and tenant_has_turn(rules, lane, tenant))
        left = left - 1
      end
    end
  end
end

local replicas = {}
for i = 3, #ARGV do
  replicas[#replicas + 1] = redis.call('HMGET', p .. ':rep:' .. ARGV[i], 'qpf', 'kv', 'n', 'capkv', 'capn', 'rate', 'open')
end
return {heads, replicas, waited_for}
