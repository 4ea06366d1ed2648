-- Who is next: lanes by clock, in them tenants by virtual time, in them requests by rank.
-- KEYS[1] scheduler prefix
-- ARGV    rules, how many of each lane, then the replicas' ids
-- returns {{id, lane, tenant, input, uncached, KV tokens, attempt, emitted, preemptions, rank, deadline, avoid,
--           1 when it is its turn, failures, 1 when it may pass, wtok its tenant is ahead}, ...},
--          {{qpf, kv, n, capkv, capn, rate, open, read} of each replica}, lane waited for ('' none)
local rules, k = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2])
local old = now() - rules.aging  -- of the rank from which on a place is kept
local lanes, heads, waited_for = waiting_lanes(), {}, ''
table.sort(lanes, function(a, b)  -- the one to be served next first
  if a[2] == b[2] then return LANES[a[1]] < LANES[b[1]] end
  return a[2] < b[2]
end)

-- Returns its rank.
local function add(id, lane, tenant, turn, passing, ahead)
  local f = redis.call('HMGET', p .. ':req:' .. id, 'input', 'uncached', 'kv', 'attempt', 'emitted', 'preemptions', 'rank',
    'deadline', 'avoid', 'failures')
  local kv = tostring(math.max(tonumber(f[3]), tonumber(f[1]) + tonumber(f[5])))
  heads[#heads + 1] = {id, lane, tenant, f[1], f[2], kv, f[4], f[5], f[6], f[7], f[8], f[9], turn and 1 or 0, f[10],
    passing and 1 or 0, ahead}
  return tonumber(f[7])
end

-- The lane's first `k` tenants, and of each whether it has its turn, whether it is near enough to that to pass, and by how
-- many wtok it is ahead of the first.
local function first_tenants(lane, blocked)
  local flat = redis.call('ZRANGE', p .. ':act:' .. lane, 0, k - 1, 'WITHSCORES')
  local tenants, turns, near, ahead = {}, {}, {}, {}
  for i = 1, #flat, 2 do tenants[#tenants + 1] = flat[i] end
  local weights = not blocked and redis.call('HMGET', p .. ':weight:' .. lane, unpack(tenants)) or {}
  for i = 1, #weights do
    local lead, weight = tonumber(flat[2 * i]) - tonumber(flat[2]), tonumber(weights[i] or 1)
    turns[i], near[i] = lead <= rules.quantum / weight, lead <= rules.patience / weight
    ahead[i] = math.floor(lead * weight + 0.5)
  end
  return tenants, turns, near, ahead
end

for _, each in ipairs(lanes) do
  local lane, left = each[1], k
  local blocking = waits_for(rules, lanes, lane)
  if waited_for == '' then waited_for = blocking end
  local tenants, turns, near, ahead, queues, ranks = {}, {}, {}, {}, {}, {}
  if k > 0 then tenants, turns, near, ahead = first_tenants(lane, blocking ~= '') end
  local last = #tenants >= k and 0 or k - 1
  for i, tenant in ipairs(tenants) do queues[i] = redis.call('ZRANGE', p .. ':q:' .. lane .. ':' .. tenant, 0, last) end
  for depth = 1, k do  -- the first of each tenant, then the second of each, ...
    for i, tenant in ipairs(tenants) do
      local id = queues[i][depth]
      if id and left > 0 then
        local turn = depth == 1 and turns[i]
        local young = (depth == 1 or ranks[i] > old) and (i == 1 or ranks[1] > old)  -- those that it passes
        local rank = add(id, lane, tenant, turn, not turn and near[i] and young, ahead[i] or 0)
        ranks[i], left = ranks[i] or rank, left - 1
      end
    end
  end
end

local replicas = {}
for i = 3, #ARGV do
  replicas[#replicas + 1] = redis.call('HMGET', p .. ':rep:' .. ARGV[i], 'qpf', 'kv', 'n', 'capkv', 'capn', 'rate', 'open',
    'read')
end
return {heads, replicas, waited_for}
