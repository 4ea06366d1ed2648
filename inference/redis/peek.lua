-- The heads of the queues, in the order in which lanes should be served (smallest clock first).
-- KEYS[1] scheduler prefix
-- ARGV    how many of each lane, then the replicas' ids
-- returns {{id, lane, input, attempt, emitted, avoid}, ...}, {n of each replica}
local p, k = KEYS[1], tonumber(ARGV[1])
local lanes = {}
for position, lane in ipairs({'enterprise', 'paid', 'free', 'batch'}) do
  if redis.call('EXISTS', p .. ':q:' .. lane) == 1 then
    lanes[#lanes + 1] = {lane, tonumber(redis.call('HGET', p .. ':lvt', lane) or '0'), position}
  end
end
table.sort(lanes, function(a, b) if a[2] == b[2] then return a[3] < b[3] end return a[2] < b[2] end)
local heads = {}
for _, lane in ipairs(lanes) do
  for _, id in ipairs(redis.call('ZRANGE', p .. ':q:' .. lane[1], 0, k - 1)) do
    local f = redis.call('HMGET', p .. ':req:' .. id, 'input', 'attempt', 'emitted', 'avoid')
    heads[#heads + 1] = {id, lane[1], f[1] or '0', f[2] or '0', f[3] or '0', f[4] or ''}
  end
end
local taken = {}
for i = 2, #ARGV do taken[#taken + 1] = tonumber(redis.call('HGET', p .. ':rep:' .. ARGV[i], 'n') or '0') end
return {heads, taken}
