-- Where the buckets stand. Changes nothing.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     for each bucket: name, tokens per minute, requests per minute (0: no limit)
-- returns  {time now (ms), for each bucket: tokens used, requests used, replies running}
--
-- Reservations that have expired do not count as running, swept or not. Keys: buckets.lua.
local running = redis.call('ZCOUNT', live, '(' .. now, '+inf')
local answer = {now}
for at = 1, #ARGV, 3 do
  local found = bucket(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  answer[#answer + 1] = math.ceil(found.tokens)
  answer[#answer + 1] = math.ceil(found.requests)
  answer[#answer + 1] = math.min(found.running, running)
end
return answer
