-- Reserves tokens, a request and places for replies in every bucket, or in none. Idempotent by request.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     time to live (ms), number of buckets, for each: name, tokens per minute, requests per minute, replies at once
--          (0: no limit); then for each reply: request id, tokens
-- returns  {verdict, the bucket that refused (from 1), ms to wait, time now (ms), for each bucket: tokens used,
--          requests used, replies running}
--          verdict 0 reserved (now or before), 1 not enough tokens, 2 not enough requests, 3 too many replies
--
-- All replies of one call are one request. Of several refusals the one with the longest wait is told. Keys: buckets.lua.
local ttl, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local replies = 3 + 4 * count
local mine, names = {}, {}
for index = 1, count do
  local at = 4 * index - 1
  mine[index] = bucket(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  mine[index].concurrent = tonumber(ARGV[at + 3])
  names[index] = ARGV[at]
end
names = table.concat(names, ' ')

local asked, fresh, wanted = {}, {}, 0
for at = replies, #ARGV, 2 do asked[ARGV[at]] = true end
sweep(asked)
for at = replies, #ARGV, 2 do
  local id = ARGV[at]
  if redis.call('ZSCORE', live, id) then
    redis.call('ZADD', live, 'GT', now + ttl, id)
  elseif redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    fresh[#fresh + 1] = at
    wanted = wanted + tonumber(ARGV[at + 1])
  end
end

local verdict, refusing, wait = 0, 0, -1
local function refuse(why, index, ms)
  if ms > wait then verdict, refusing, wait = why, index, ms end
end
if #fresh > 0 then
  for index, found in ipairs(mine) do
    local tokens, requests = found.tokens + wanted - found.tokens_limit, found.requests + 1 - found.requests_limit
    if found.tokens_limit > 0 and tokens > 0 then
      refuse(1, index, math.ceil(tokens * 60000 / found.tokens_limit))
    end
    if found.requests_limit > 0 and requests > 0 then
      refuse(2, index, math.ceil(requests * 60000 / found.requests_limit))
    end
    if found.concurrent > 0 and found.running + #fresh > found.concurrent then refuse(3, index, 0) end
  end
end
if verdict == 0 and #fresh > 0 then
  for _, found in ipairs(mine) do
    if found.requests_limit > 0 then found.requests = found.requests + 1 end
  end
  for _, at in ipairs(fresh) do hold(ARGV[at], tonumber(ARGV[at + 1]), names, now + ttl) end
end
save()

local answer = {verdict, refusing, math.max(0, wait), now}
for _, found in ipairs(mine) do
  answer[#answer + 1] = math.ceil(found.tokens)
  answer[#answer + 1] = math.ceil(found.requests)
  answer[#answer + 1] = found.running
end
return answer
