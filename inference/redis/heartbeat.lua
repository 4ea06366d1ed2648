-- Renews the leases of one runner, and charges output as it was generated.
-- KEYS[1] scheduler prefix
-- ARGV    rules, then id, attempt, tokens emitted for each request
-- returns for each request: 'ok', 'cancelled' or 'preempted' (renewed, but somebody asked to stop it, or wants its place),
--         'stale' (another attempt has it) or 'unknown' (Redis lost it)
local rules, answers = cmsgpack.unpack(ARGV[1]), {}
local expiry = now() + rules.lease
local leases, times, places = {}, {}, {}  -- what is still to be written: leases; the lanes' times, and where they are

local function write_leases()
  if #leases > 0 then redis.call('ZADD', p .. ':lease', unpack(leases)) end
  leases = {}
end

local function write_lanes()
  for lane, time in pairs(times) do
    if places[lane] == 'act' then
      redis.call('ZADD', p .. ':act', exact(time), lane)
    else
      redis.call('HSET', p .. ':idle', lane, exact(time))
      stop_at('', exact(time))
    end
  end
  times = {}
end

-- A lane's time is read once, moved here for one request after the other, and written once.
local function charge_lane(lane, service)
  if not times[lane] then
    local time, place = redis.call('ZSCORE', p .. ':act', lane), 'act'
    if not time then time, place = noted_time('', lane) end
    if not time then
      write_lanes()  -- it begins at the floor, which those before may have moved
      return advance('', lane, service)
    end
    times[lane], places[lane] = tonumber(time), place
  end
  times[lane] = times[lane] + service
end

local function renew(id, attempt, emitted)
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'state', 'attempt', 'cancelled', 'preempted', 'lane', 'tenant', 'emitted', 'base',
    'input', 'kv', 'hkv', 'replica', 'qpf', 'prefilled')
  if not f[1] then return 'unknown' end
  if f[1] ~= 'running' or f[2] ~= attempt then return 'stale' end
  leases[#leases + 1] = expiry
  leases[#leases + 1] = id
  if #leases >= 2000 then write_leases() end  -- Lua passes some thousand arguments at most
  local known = tonumber(f[7])
  if emitted > known then
    local wtok = rules.output * (emitted - known)
    advance(':' .. f[5], f[6], wtok / weight_of(f[5], f[6]))
    charge_lane(f[5], wtok / rules.weight[f[5]])
    redis.call('HSET', req, 'emitted', emitted)
    known = emitted
  end
  if known > tonumber(f[8]) and f[14] ~= '1' then prefilled(id, f[12], f[13]) end
  local grown = math.max(tonumber(f[10]), tonumber(f[9]) + known) - tonumber(f[11])
  if grown > 0 then
    redis.call('HINCRBY', req, 'hkv', grown)
    redis.call('HINCRBY', p .. ':rep:' .. f[12], 'kv', grown)
  end
  return f[3] and 'cancelled' or f[4] and 'preempted' or 'ok'
end

for i = 2, #ARGV, 3 do answers[#answers + 1] = renew(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])) end
write_leases()
write_lanes()
return answers
