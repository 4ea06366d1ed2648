-- What the operations share; inference/scheduling/book.py says the same in Python. KEYS[1] is the scheduler's prefix.
-- A scope is '' for the clocks of the lanes, and ':<lane>' for those of a lane's tenants.
local p = KEYS[1]
local LANES = {enterprise = 1, paid = 2, free = 3, batch = 4}

local function exact(number) return string.format('%.17g', number) end

-- Clocks: virtual times of those that wait are in `act`, of the others in `idle`; of tenants of whom nothing is left, but who
-- are ahead of the floor, in `owing`. The floor is the smallest of those that wait; while nobody does, it is where the last
-- one stopped, and goes along with what is served.

local function floor_of(scope)
  local first = redis.call('ZRANGE', p .. ':act' .. scope, 0, 0, 'WITHSCORES')
  return tonumber(first[2] or redis.call('GET', p .. ':lastvt' .. scope) or 0)
end

-- The time of a member that does not wait, and where it is: 'idle', 'owing' or nowhere.
local function noted_time(scope, member)
  local time = redis.call('HGET', p .. ':idle' .. scope, member)
  if time then return tonumber(time), 'idle' end
  time = redis.call('ZSCORE', p .. ':owing' .. scope, member)
  if time then return tonumber(time), 'owing' end
end

-- The time with which one that does not wait would join, and where its own time is noted.
local function joining_time(scope, member, most_ahead)
  local floor, time, place = floor_of(scope), noted_time(scope, member)
  return math.min(math.max(time or floor, floor), floor + most_ahead), place
end

-- Returns whether it waited before.
local function join(scope, member, most_ahead)
  if redis.call('ZSCORE', p .. ':act' .. scope, member) then return true end
  local time, place = joining_time(scope, member, most_ahead)
  redis.call('ZADD', p .. ':act' .. scope, exact(time), member)
  if place then redis.call(place == 'idle' and 'HDEL' or 'ZREM', p .. ':' .. place .. scope, member) end
  return false
end

-- While nobody waits nobody is owed anything: the floor goes along.
local function stop_at(scope, time)
  if redis.call('EXISTS', p .. ':act' .. scope) == 1 then return end
  local stopped = tonumber(redis.call('GET', p .. ':lastvt' .. scope) or 0)
  if tonumber(time) > stopped then redis.call('SET', p .. ':lastvt' .. scope, time) end
end

local function leave(scope, member)
  local time = redis.call('ZSCORE', p .. ':act' .. scope, member)
  redis.call('ZREM', p .. ':act' .. scope, member)
  redis.call('HSET', p .. ':idle' .. scope, member, time)
  stop_at(scope, time)
end

local function advance(scope, member, service)
  if redis.call('ZADD', p .. ':act' .. scope, 'XX', 'INCR', exact(service), member) then return end
  local time, place = noted_time(scope, member)
  local after = exact((time or floor_of(scope)) + service)
  redis.call('HSET', p .. ':idle' .. scope, member, after)
  if service > 0 then stop_at(scope, after) end
  if place == 'owing' then redis.call('ZREM', p .. ':owing' .. scope, member) end
end

local function weight_of(lane, tenant)
  return tonumber(redis.call('HGET', p .. ':weight:' .. lane, tenant) or 1)
end

local function charge(rules, lane, tenant, wtok)
  advance(':' .. lane, tenant, wtok / weight_of(lane, tenant))
  advance('', lane, wtok / rules.weight[lane])
end

-- Tenants: how many of their requests are not settled, and their weights where these are not 1.

local function enter(lane, tenant, weight)
  local live = redis.call('HINCRBY', p .. ':live:' .. lane, tenant, 1)
  if weight ~= 1 then
    redis.call('HSET', p .. ':weight:' .. lane, tenant, exact(weight))
  elseif live > 1 then  -- the first of a tenant finds none
    redis.call('HDEL', p .. ':weight:' .. lane, tenant)
  end
end

local function exit(lane, tenant)
  if redis.call('HINCRBY', p .. ':live:' .. lane, tenant, -1) > 0 then return end
  local scope = ':' .. lane
  local time = redis.call('HGET', p .. ':idle' .. scope, tenant)
  redis.call('HDEL', p .. ':live' .. scope, tenant)
  redis.call('HDEL', p .. ':weight' .. scope, tenant)
  redis.call('HDEL', p .. ':idle' .. scope, tenant)
  if time and tonumber(time) > floor_of(scope) then redis.call('ZADD', p .. ':owing' .. scope, time, tenant) end
end

-- Backlog

local function push(rules, lane, tenant, weight, rank, id)
  redis.call('ZADD', p .. ':q:' .. lane .. ':' .. tenant, rank, id)
  redis.call('HINCRBY', p .. ':len', lane, 1)
  -- Only where nothing else is under way its debt is cut: a short queue is empty now and then, which is not idle.
  local alone = redis.call('HGET', p .. ':live:' .. lane, tenant) == '1'
  if join(':' .. lane, tenant, alone and rules.clamp / weight or math.huge) then return end
  alone = alone and redis.call('HLEN', p .. ':live:' .. lane) == 1
  join('', lane, alone and rules.clamp / rules.weight[lane] or math.huge)
end

-- `more`: whether others of the tenant wait, where that is known.
local function remove(lane, tenant, id, more)
  local queue = p .. ':q:' .. lane .. ':' .. tenant
  redis.call('ZREM', queue, id)
  redis.call('HINCRBY', p .. ':len', lane, -1)
  if more == nil then more = redis.call('EXISTS', queue) == 1 end
  if more then return end
  leave(':' .. lane, tenant)
  if redis.call('EXISTS', p .. ':act:' .. lane) == 0 then leave('', lane) end
end

-- The lanes that wait as {lane, time}.
local function waiting_lanes()
  local flat, lanes = redis.call('ZRANGE', p .. ':act', 0, -1, 'WITHSCORES'), {}
  for i = 1, #flat, 2 do lanes[#lanes + 1] = {flat[i], tonumber(flat[i + 1])} end
  return lanes
end

-- The first of `lanes` that trails its share so far that `lane` may not be served before it, or ''.
local function waits_for(rules, lanes, lane)
  local own
  for _, each in ipairs(lanes) do
    if each[1] == lane then own = each[2] end
  end
  for _, each in ipairs(lanes) do
    if each[1] ~= lane and own - each[2] > rules.patience / rules.weight[each[1]] then return each[1] end
  end
  return ''
end

-- Leases and counters: what a request holds of a replica is in its own hash (qpf, hkv, read), and given back from there.

-- The caller counts it on the replica.
local function hold(rules, id, lane, replica, runner, uncached, context, emitted, attempt, moment)
  redis.call('HINCRBY', p .. ':run', lane, 1)
  redis.call('HSET', p .. ':req:' .. id, 'state', 'running', 'attempt', attempt, 'replica', replica, 'runner', runner,
    'qpf', uncached, 'hkv', context, 'base', emitted, 'committed', moment, 'prefilled', 0)
  redis.call('ZADD', p .. ':lease', moment + rules.lease, id)
end

-- Again is nothing.
local function prefilled(id, replica, qpf)
  local f = redis.call('HMGET', p .. ':req:' .. id, 'prefilled', 'input')
  if f[1] == '1' then return end
  if qpf ~= '0' then redis.call('HINCRBY', p .. ':rep:' .. replica, 'qpf', -qpf) end
  redis.call('HINCRBY', p .. ':rep:' .. replica, 'read', f[2])
  redis.call('HSET', p .. ':req:' .. id, 'qpf', 0, 'prefilled', 1, 'read', f[2])
end

-- `read`: its prompt's tokens, where that is read.
local function unload(id, lane, replica, qpf, kv, read)
  local rep = p .. ':rep:' .. replica
  redis.call('HINCRBY', p .. ':run', lane, -1)
  redis.call('ZREM', p .. ':lease', id)
  if qpf ~= '0' then redis.call('HINCRBY', rep, 'qpf', -qpf) end
  redis.call('HINCRBY', rep, 'kv', -kv)
  redis.call('HINCRBY', rep, 'n', -1)
  if read then redis.call('HINCRBY', rep, 'read', -read) end
end

local function give_back(id)
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'lane', 'replica', 'qpf', 'hkv', 'read')
  unload(id, f[1], f[2], f[3], f[4], f[5])
  redis.call('HDEL', req, 'replica', 'runner', 'read')
  redis.call('HSET', req, 'qpf', 0, 'hkv', 0, 'prefilled', 1)
end

local function finish(id, outcome, moment)
  redis.call('HSET', p .. ':req:' .. id, 'state', 'ended', 'outcome', outcome)
  redis.call('ZADD', p .. ':ended', moment, id)
end

-- After `give_back`: to the queue at its old rank, or to the ended. Returns what became of it.
local function requeue_or_end(rules, id, failures, moment)
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'lane', 'tenant', 'rank', 'deadline', 'cancelled')
  redis.call('HSET', req, 'failures', failures)
  redis.call('HDEL', req, 'preempted')
  if f[5] then
    finish(id, 'cancelled', moment)
    return 'cancelled'
  end
  if failures >= rules.failures then
    finish(id, 'failed', moment)
    return 'failed'
  end
  local deadline = math.max(tonumber(f[4]), moment + rules.again)
  redis.call('HSET', req, 'state', 'queued', 'deadline', deadline)
  redis.call('ZADD', p .. ':deadline', deadline, id)
  push(rules, f[1], f[2], weight_of(f[1], f[2]), f[3], id)
  return 'queued'
end

local function wake()
  if redis.call('EXISTS', p .. ':act') == 1 then redis.call('PUBLISH', p .. ':wake', 'work') end
end
