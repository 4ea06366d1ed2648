-- Reserves tokens, a request and places for replies in every bucket, and their most in every budget; or nothing anywhere.
-- Idempotent by reply.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     what is taken: all; request (of replies that are to start later: the request alone, nothing is held); replies (those
--          that start now: all but the request); time to live (ms), user, API key (-: none);
--          number of buckets, for each: name, tokens per minute, requests per minute, replies at once (0: no limit);
--          number of hard budgets, for each: subject, unit, days (0: calendar month), limit;
--          for each reply: request id, tokens of the minute, most tokens, most cost (1e-10);
--          then, where the replies are made instead of one that waits: its request id
-- returns  {verdict, what refused (from 1, of buckets or budgets), ms to wait, time now (ms), taken and reserved of the
--          budget that refused, for each bucket: tokens used, requests used, replies running}
--          verdict 0 reserved (now or before), 1 not enough tokens, 2 not enough requests, 3 too many replies,
--          4 beyond a budget, 5 a budget's counter is not known
--
-- Where the request alone is taken, neither tokens nor places refuse, nor a budget that replies that run hold.
-- All replies of one call are one request. Of several refusals the one with the longest wait is told. A budget's wait is
-- 0 where replies that run hold what is missing, and where the period in which the replies were sent has ended. What the
-- one that is given up holds is as room for the others; it is given back by whoever settles it. Keys: buckets.lua,
-- counters.lua.
local with_request, with_replies = ARGV[1] ~= 'replies', ARGV[1] ~= 'request'
local ttl, user, key, count_of_buckets = tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local budgets_at = 6 + 4 * count_of_buckets
local count_of_budgets = tonumber(ARGV[budgets_at])
local replies = budgets_at + 1 + 4 * count_of_budgets
local last = #ARGV - (#ARGV - replies + 1) % 4
local given_up = ARGV[last + 1]
local mine, names, budgets = {}, {}, {}
for index = 1, count_of_buckets do
  local at = 2 + 4 * index
  mine[index] = bucket(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  mine[index].concurrent = tonumber(ARGV[at + 3])
  names[index] = ARGV[at]
end
local names_of = names
names = table.concat(names, ' ')
for at = budgets_at + 1, replies - 1, 4 do
  budgets[#budgets + 1] = {
    name = ARGV[at] .. ' ' .. ARGV[at + 1], unit = ARGV[at + 1], days = tonumber(ARGV[at + 2]),
    limit = tonumber(ARGV[at + 3]),
  }
end

local asked, fresh, wanted = {}, {}, 0
for at = replies, #ARGV, 4 do asked[ARGV[at]] = true end -- the one that is given up, too
sweep(asked)
local returned = given_up and reservation(given_up)
local returned_of = {}
if returned then
  for name in each(returned.names) do returned_of[name] = true end
end
for at = replies, last, 4 do
  local id = ARGV[at]
  if redis.call('ZSCORE', live, id) then
    redis.call('ZADD', live, 'GT', now + ttl, id)
  elseif redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    fresh[#fresh + 1] = {
      id = id,
      entry = {
        tokens = tonumber(ARGV[at + 1]), most = tonumber(ARGV[at + 2]), cost = tonumber(ARGV[at + 3]),
        user = user, key = key, names = names,
      },
    }
    wanted = wanted + fresh[#fresh].entry.tokens
  end
end

local verdict, refusing, wait, taken, reserved = 0, 0, -1, 0, 0
local function refuse(why, index, ms)
  if ms <= wait then return false end
  verdict, refusing, wait = why, index, ms
  return true
end

-- When a period has room again for so much; 0 where replies that run hold it.
local function until_room(counter, days, day, over, now_held)
  if over <= now_held then return 0 end
  if days == 0 then return month_of(month_of(day) + 31) * DAY - now end
  local offset = day - days + 1 - counter.first
  for at = 1, days do
    over = over - counter.amounts[at + offset]
    if over <= 0 then return (day + at) * DAY - now end
  end
  return (day + days) * DAY - now
end

local function check_budget(index, counter, day, all)
  local budget = budgets[index]
  if not counter.there then
    verdict, refusing, wait = 5, index, math.huge
    return
  end
  local sum = taken_in(counter, budget.days, day)
  local over = sum - budget.limit
  if over <= 0 or (over <= counter.held and not with_replies) then return end
  if refuse(4, index, math.max(0, until_room(counter, budget.days, day, over, counter.held))) then
    taken, reserved = math.max(0, sum - all[budget.unit]), counter.held
  end
end

-- As if the replies were taken, and what is given up for them returned: all at once, however many they are.
local function check_budgets()
  local sums, all, units = most_by_day(fresh), {tokens = 0, cost = 0}, {}
  for _, sum in pairs(sums) do all.tokens, all.cost = all.tokens + sum.tokens, all.cost + sum.cost end
  for _, budget in ipairs(budgets) do units[budget.name] = budget.unit end
  for name, unit in pairs(units) do
    for day, sum in pairs(sums) do suppose(name, day, sum[unit]) end
  end
  if returned then suppose_returned(given_up, returned) end
  for day in pairs(sums) do
    local counters = read_counters(budgets, day)
    for index, budget in ipairs(budgets) do check_budget(index, counters[budget.name], day, all) end
  end
end

if #fresh > 0 then
  for index, found in ipairs(mine) do
    local back, places = 0, 0
    if returned_of[names_of[index]] then back, places = returned.tokens, 1 end
    local tokens = math.max(0, found.tokens - back) + wanted - found.tokens_limit
    local requests = found.requests + 1 - found.requests_limit
    if with_replies and found.tokens_limit > 0 and tokens > 0 then
      refuse(1, index, math.ceil(tokens * 60000 / found.tokens_limit))
    end
    if with_request and found.requests_limit > 0 and requests > 0 then
      refuse(2, index, math.ceil(requests * 60000 / found.requests_limit))
    end
    if with_replies and found.concurrent > 0 and found.running - places + #fresh > found.concurrent then
      refuse(3, index, 0)
    end
  end
  check_budgets()
end
if verdict == 0 and #fresh > 0 then
  for _, found in ipairs(mine) do
    if with_request and found.requests_limit > 0 then found.requests, found.changed = found.requests + 1, true end
  end
  if with_replies then hold(fresh, now + ttl) end
end
save_all()

local answer = {verdict, refusing, wait == math.huge and 0 or math.max(0, wait), now, taken, reserved}
for _, found in ipairs(mine) do
  answer[#answer + 1] = math.ceil(found.tokens)
  answer[#answer + 1] = math.ceil(found.requests)
  answer[#answer + 1] = found.running
end
return answer
