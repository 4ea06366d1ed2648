-- Takes up counters that were read from the ledger, by the process that has put its token into :loading.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     token, time to live of reservations (ms), how long to remember that a request is settled (ms);
--          number of requests that PostgreSQL has ended and that were not settled here, for each: id, tokens used, tokens
--          billed, cost; number of open requests, for each: id, most tokens, most cost, user, API key (-: none);
--          for each counter: subject, unit, number of days, for each: day, amount
-- returns  1; 0 when the token is not there any more: then everything has to be read again
--
-- While the token is there nothing that was billed is settled by others. So what PostgreSQL had ended when it was read is in
-- the amounts and is settled here, and everything else is reserved. Keys: buckets.lua, counters.lua.
if redis.call('GET', loading) ~= ARGV[1] then return 0 end
local ttl, remember = tonumber(ARGV[2]), tonumber(ARGV[3])
local at = 5

for _ = 1, tonumber(ARGV[4]) do
  settle(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), remember)
  at = at + 4
end

local open = tonumber(ARGV[at])
at = at + 1
for _ = 1, open do
  local id, most, cost, user, key = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local entry = reservation(id)
  if entry then
    count(day_of(id), entry, -entry.most, -entry.cost, -entry.most, -entry.cost)
    entry.most, entry.cost, entry.user, entry.key = most, cost, user, key
    redis.call('HSET', held, id, packed(entry))
    count(day_of(id), entry, most, cost, most, cost)
    redis.call('ZADD', live, 'GT', now + ttl, id)
  elseif redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    entry = former(id)
    entry.tokens, entry.most, entry.cost, entry.user, entry.key = 0, most, cost, user, key
    hold({{id = id, entry = entry}}, now + ttl)
    redis.call('DEL', prefix .. ':expired:' .. id)
  end
  at = at + 5
end

-- What is reserved of a subject, by day, and all of it.
local function reserved_of(subject, unit)
  local by_day, sum = {}, 0
  local all = redis.call('HGETALL', held)
  for index = 1, #all, 2 do
    local entry = unpacked(all[index + 1])
    if subject == 'org' or subject == 'user:' .. entry.user or subject == 'key:' .. entry.key then
      local amount, day = unit == 'tokens' and entry.most or entry.cost, day_of(all[index])
      by_day[day] = (by_day[day] or 0) + amount
      sum = sum + amount
    end
  end
  return by_day, sum
end

local today = math.floor(now / DAY)
while at <= #ARGV do
  local subject, unit, days = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local name = subject .. ' ' .. unit
  local by_day, sum = reserved_of(subject, unit)
  for day = today - OLDEST, today + 1 do redis.call('HDEL', counted, name .. ' ' .. day) end
  redis.call('HSET', counted, name, 1, name .. ' held', string.format('%d', sum))
  at = at + 3
  for _ = 1, days do
    redis.call('HINCRBY', counted, name .. ' ' .. ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  for day, amount in pairs(by_day) do
    redis.call('HINCRBY', counted, name .. ' ' .. day, string.format('%d', amount))
  end
  counting = true
end
save_all()
redis.call('DEL', loading)
return 1
