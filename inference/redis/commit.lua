-- Places a request: order, gate, slots and KV are checked, and everything is counted, in one step.
-- KEYS[1] scheduler prefix
-- ARGV    rules, id, replica, runner, tokens that this replica has to prefill, attempts so far as `peek` showed them,
--         1 where those whose turn it is found no place
-- returns {attempt, ''}, the same again for the same call, or {0, why}: gone, turn, replica, slots, kv or gate

-- Whether the first requests of its tenant and of the one that was served least are young, or are itself.
local function may_pass(rules, lane, tenant, id, own, least, lead)
  if lead > rules.patience / weight_of(lane, tenant) then return false end
  local queue, old = p .. ':q:' .. lane .. ':', now() - rules.aging
  if own ~= id and tonumber(redis.call('ZSCORE', queue .. tenant, own)) <= old then return false end
  return least == tenant or tonumber(redis.call('ZRANGE', queue .. least, 0, 0, 'WITHSCORES')[2]) > old
end

local id, replica, runner, uncached, before = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local passing = ARGV[7] == '1'
local f = redis.call('HMGET', p .. ':req:' .. id, 'state', 'lane', 'tenant', 'attempt', 'input', 'kv', 'emitted', 'replica',
  'runner')
if not f[1] then return {0, 'gone'} end
local attempt = tonumber(f[4])
if f[1] == 'running' and attempt == before + 1 and f[8] == replica and f[9] == runner then return {attempt, ''} end
if f[1] ~= 'queued' or attempt ~= before then return {0, 'gone'} end

local rules, lane, tenant = cmsgpack.unpack(ARGV[1]), f[2], f[3]
local first = redis.call('ZRANGE', p .. ':q:' .. lane .. ':' .. tenant, 0, 1)
if first[1] ~= id and not passing then return {0, 'turn'} end
if waits_for(rules, waiting_lanes(), lane) ~= '' then return {0, 'turn'} end
local act = p .. ':act:' .. lane
local least = redis.call('ZRANGE', act, 0, 0, 'WITHSCORES')
local lead = least[1] == tenant and 0 or redis.call('ZSCORE', act, tenant) - least[2]
-- It is its tenant's first, within a quantum of the tenant that was served least; or passes young ones, within some more.
local turn = first[1] == id and (lead == 0 or lead <= rules.quantum / weight_of(lane, tenant))
if not turn and not (passing and may_pass(rules, lane, tenant, id, first[1], least[1], lead)) then return {0, 'turn'} end

local input, emitted = tonumber(f[5]), tonumber(f[7])
local context = math.max(tonumber(f[6]), input + emitted)
local rep = p .. ':rep:' .. replica
local r = redis.call('HMGET', rep, 'open', 'n', 'capn', 'kv', 'capkv', 'qpf', 'rate')
if r[1] ~= '1' then return {0, 'replica'} end
local n, kv, qpf, capn, capkv = tonumber(r[2] or 0), tonumber(r[4] or 0), tonumber(r[6] or 0), tonumber(r[3]), tonumber(r[5])
local ceiling = rules.ceiling[lane]
local slots = capn > 0 and math.max(1, math.floor(ceiling * capn + 1e-9)) or 0
if n + 1 > slots then return {0, 'slots'} end
if n > 0 and capkv > 0 and kv + context > ceiling * capkv then return {0, 'kv'} end
local sooner_here = rules.urgent[lane] and qpf <= input + emitted - uncached
if qpf > 0 and qpf + uncached > rules.gate[lane] * tonumber(r[7]) and not sooner_here then return {0, 'gate'} end

if attempt == 0 then charge(rules, lane, tenant, uncached + rules.cached * math.max(0, input - uncached)) end
remove(lane, tenant, id, #first > 1)
redis.call('ZREM', p .. ':deadline', id)
redis.call('HSET', rep, 'n', n + 1, 'kv', kv + context, 'qpf', qpf + uncached)
hold(rules, id, lane, replica, runner, uncached, context, emitted, attempt + 1, now())
return {attempt + 1, ''}
