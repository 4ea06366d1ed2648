-- Puts a request into its lane's queue; idempotent by id.
-- KEYS[1] scheduler prefix
-- ARGV    id, lane, tenant, input tokens, deadline (ms, absolute), attempts so far, tokens emitted so far, avoid ('' or a replica)
-- returns 1 when it was added, 0 when it was known already
local p, id, lane = KEYS[1], ARGV[1], ARGV[2]
local req = p .. ':req:' .. id
if redis.call('EXISTS', req) == 1 then return 0 end
local t = redis.call('TIME')
local rank = t[1] * 1000 + math.floor(t[2] / 1000)
local queue = p .. ':q:' .. lane

-- A lane that was idle takes up its clock where the slowest busy lane stands: idling earns no credit.
if redis.call('EXISTS', queue) == 0 then
  local floor
  for _, other in ipairs({'enterprise', 'paid', 'free', 'batch'}) do
    if redis.call('EXISTS', p .. ':q:' .. other) == 1 then
      local clock = tonumber(redis.call('HGET', p .. ':lvt', other) or '0')
      if not floor or clock < floor then floor = clock end
    end
  end
  local own = tonumber(redis.call('HGET', p .. ':lvt', lane) or '0')
  if floor and own < floor then redis.call('HSET', p .. ':lvt', lane, floor) end
end

redis.call('HSET', req, 'state', 'queued', 'lane', lane, 'tenant', ARGV[3], 'input', ARGV[4], 'deadline', ARGV[5],
  'attempt', ARGV[6], 'emitted', ARGV[7], 'avoid', ARGV[8], 'rank', rank, 'failures', 0)
redis.call('ZADD', queue, rank, id)
redis.call('ZADD', p .. ':deadline', ARGV[5], id)
redis.call('PUBLISH', p .. ':wake', 'work')
return 1
