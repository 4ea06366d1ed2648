-- Where buckets and budgets stand. Changes nothing.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     number of buckets, for each: name, tokens per minute, requests per minute (0: no limit);
--          for each budget: subject, unit, days (0: calendar month), the day (since 1970) whose period is meant
-- returns  {time now (ms), for each bucket: tokens used, requests used, replies running;
--          for each budget: what is taken (-1: not known), what of it is reserved only}
--
-- What has expired is nowhere in it, swept or not. Keys: buckets.lua, counters.lua.
local budgets_at = 2 + 3 * tonumber(ARGV[1])
local answer, asked, by_day = {now}, {}, {}
for at = 2, budgets_at - 1, 3 do
  asked[#asked + 1] = bucket(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
end
overlook_expired()
for _, found in ipairs(asked) do
  answer[#answer + 1] = math.ceil(found.tokens)
  answer[#answer + 1] = math.ceil(found.requests)
  answer[#answer + 1] = found.running
end
for at = budgets_at, #ARGV, 4 do
  local day = tonumber(ARGV[at + 3])
  by_day[day] = by_day[day] or {}
  table.insert(by_day[day], {at = #answer + 1, name = ARGV[at] .. ' ' .. ARGV[at + 1], days = tonumber(ARGV[at + 2])})
  answer[#answer + 1], answer[#answer + 2] = 0, 0
end
for day, budgets in pairs(by_day) do
  local counters = read_counters(budgets, day)
  for _, budget in ipairs(budgets) do
    local counter = counters[budget.name]
    answer[budget.at] = counter.there and taken_in(counter, budget.days, day) or -1
    answer[budget.at + 1] = counter.held
  end
end
return answer
