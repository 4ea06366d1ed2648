-- How many requests of a lane would be served before one that a tenant brought now; `LaneBacklog.before_next` says how.
-- KEYS[1] scheduler prefix
-- ARGV    rules, lane, tenant, its requests that are about to be enqueued
-- returns the number
local rules, lane, tenant, coming = cmsgpack.unpack(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local act = p .. ':act:' .. lane
local own = redis.call('ZCARD', p .. ':q:' .. lane .. ':' .. tenant) + coming
local time, others, weight = redis.call('ZSCORE', act, tenant), redis.call('ZCARD', act), weight_of(lane, tenant)
if time then
  others = others - 1
else
  local alone = redis.call('HEXISTS', p .. ':live:' .. lane, tenant) == 0
  time = exact(joining_time(':' .. lane, tenant, alone and rules.clamp / weight or math.huge))
end
local first = redis.call('ZCOUNT', act, '-inf', '(' .. time)
local waiting = tonumber(redis.call('HGET', p .. ':len', lane) or 0) + coming
return math.min(waiting, own + first + math.floor(own * others / weight))
