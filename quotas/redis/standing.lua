-- Where buckets and budgets stand. Changes nothing.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     number of buckets, for each: name, tokens per minute, requests per minute (0: no limit);
--          for each budget: subject, unit, days (0: calendar month), the day (since 1970) whose period is meant
-- returns  {time now (ms), for each bucket: tokens used, requests used, replies running;
--          for each budget: what is taken (-1: not known), what of it is reserved only}
--
-- Reservations that have expired do not count as running, swept or not. Keys: buckets.lua, counters.lua.
local running = redis.call('ZCOUNT', live, '(' .. now, '+inf')
local budgets_at = 2 + 3 * tonumber(ARGV[1])
local answer = {now}
for at = 2, budgets_at - 1, 3 do
  local found = bucket(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  answer[#answer + 1] = math.ceil(found.tokens)
  answer[#answer + 1] = math.ceil(found.requests)
  answer[#answer + 1] = math.min(found.running, running)
end
for at = budgets_at, #ARGV, 4 do
  local name = ARGV[at] .. ' ' .. ARGV[at + 1]
  local there, now_held = unpack(redis.call('HMGET', counted, name, name .. ' held'))
  local taken = there and taken_in(name, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])) or -1
  answer[#answer + 1] = taken
  answer[#answer + 1] = tonumber(now_held or 0)
end
return answer
