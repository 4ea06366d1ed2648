-- Counters of what is spent, for budgets: behind buckets.lua it stands ahead of each script of this folder.
--
-- Of a subject (org, user:<id>, key:<id>) and a unit (tokens, cost in 1e-10 of the currency) there is, in one HASH:
--   :counted  '<subject> <unit>'        1: it is counted. Absent: nothing is known, and the ledger has to be asked
--             '<subject> <unit> <day>'  what was settled and is reserved of requests of that day (UTC, days since 1970)
--             '<subject> <unit> held'   how much of all that is reserved only
--   :loading  a token of the process that reads the ledger now: meanwhile nothing that was billed is settled
--
-- A request belongs to the day, and so to the month, in which its id was made, whenever it is settled. All amounts are
-- integers: they are added by Redis, in 64 bits, and compared here as doubles, which are exact up to 2^53.
local UNITS = {'tokens', 'cost'}
local COUNTED = 259200000 -- ms that counters live: who was away for longer has them read from the ledger again
local OLDEST = 125        -- days; no period is longer
local DAY = 86400000
local counted, loading = prefix .. ':counted', prefix .. ':loading'
local of_whom = {}
local as_if = {} -- field of :counted -> what is added to it wherever it is read below, and written nowhere
local counting = false

-- The day of a UUIDv7: its first 48 bits are milliseconds.
local function day_of(id)
  return math.floor(tonumber(string.sub(id, 1, 8) .. string.sub(id, 10, 13), 16) / DAY)
end

-- The first day of a day's month, in the Gregorian calendar (as in Hinnant's civil_from_days).
local function month_of(day)
  local shifted = day + 719468
  local of_era = shifted % 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
    - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153)
  return day - (of_year - math.floor((153 * month + 2) / 5))
end

-- The counters that there are of those whom an entry belongs to.
local function counters_of(entry)
  local who = entry.user .. ' ' .. entry.key
  if of_whom[who] then return of_whom[who] end
  local names, found = {'org tokens', 'org cost'}, {}
  for subject, id in pairs({['user:'] = entry.user, ['key:'] = entry.key}) do
    if id ~= '-' and id ~= UNKNOWN then
      for _, unit in ipairs(UNITS) do names[#names + 1] = subject .. id .. ' ' .. unit end
    end
  end
  for at, there in ipairs(redis.call('HMGET', counted, unpack(names))) do
    if there then found[#found + 1] = {name = names[at], tokens = string.sub(names[at], -6) == 'tokens'} end
  end
  of_whom[who] = found
  return found
end

-- A counter's first amount of a day: the oldest days are dropped.
local function drop_old(name, day)
  local old = {}
  for back = OLDEST, OLDEST + 9 do old[#old + 1] = name .. ' ' .. (day - back) end
  redis.call('HDEL', counted, unpack(old))
end

-- Adds to what is taken (settled and reserved) of a day on behalf of an entry's owners, and to what of it is reserved only.
local function count(day, entry, tokens, cost, held_tokens, held_cost)
  for _, counter in ipairs(counters_of(entry)) do
    local taken, kept = counter.tokens and tokens or cost, counter.tokens and held_tokens or held_cost
    if taken ~= 0 then
      if redis.call('HINCRBY', counted, counter.name .. ' ' .. day, taken) == taken then drop_old(counter.name, day) end
    end
    if kept ~= 0 then redis.call('HINCRBY', counted, counter.name .. ' held', kept) end
    counting = true
  end
end

-- Nothing is known any more: the next request that needs it has the ledger read.
local function forget()
  redis.call('DEL', counted)
  of_whom = {}
end

-- Whatever reads a counter from here on sees so much more: of a day, or of what is held.
local function suppose(name, what, amount)
  local field = name .. ' ' .. what
  as_if[field] = (as_if[field] or 0) + amount
end

-- As if a reservation were given back.
local function suppose_returned(id, entry)
  local day = day_of(id)
  for _, counter in ipairs(counters_of(entry)) do
    local amount = counter.tokens and entry.most or entry.cost
    suppose(counter.name, day, -amount)
    suppose(counter.name, 'held', -amount)
  end
end

-- First and last day that count in the period of a day: its calendar month (days 0), or so many days up to it.
local function period_of(days, day)
  if days > 0 then return day - days + 1, day + 1 end -- one more: ids may be older than the clock, by little
  local first = month_of(day)
  return first, month_of(first + 31) - 1
end

-- A counter as of a day. back[n]: what is taken of the n days up to it; amounts[n]: of the n-th day from `first` on.
local function read_counter(name, day, first, last)
  local fields = {name, name .. ' held'}
  for at = first, last do fields[#fields + 1] = name .. ' ' .. at end
  local values = redis.call('HMGET', counted, unpack(fields))
  local function value(at) return tonumber(values[at] or 0) + (as_if[fields[at]] or 0) end
  local amounts, back = {}, {[0] = 0}
  for at = 3, #fields do amounts[at - 2] = value(at) end
  for ago = 1, day - first + 1 do back[ago] = back[ago - 1] + amounts[day - first + 2 - ago] end
  return {there = values[1], held = value(2), amounts = amounts, first = first, back = back}
end

-- The counters of budgets (name and days of each) by name, each read once: with days for all that ask for it.
local function read_counters(budgets, day)
  local spans, found = {}, {}
  for _, budget in ipairs(budgets) do
    local first, last = period_of(budget.days, day)
    local span = spans[budget.name] or {first, last}
    spans[budget.name] = {math.min(span[1], first), math.max(span[2], last)}
  end
  for name, span in pairs(spans) do found[name] = read_counter(name, day, span[1], span[2]) end
  return found
end

-- What is taken of a counter in the period of the day that it was read for. No more than its days are added up, so it
-- is exact whenever it is below 2^53.
local function taken_in(counter, days, day)
  local offset = 1 - counter.first
  if days > 0 then return math.max(counter.back[days], counter.back[days - 1] + counter.amounts[day + 1 + offset]) end
  local first, last = period_of(days, day)
  local sum = counter.back[day - first + 1]
  for at = day + 1, last do sum = sum + counter.amounts[at + offset] end
  return sum
end

-- The most that requests may be billed for, by day.
local function most_by_day(requests)
  local sums = {}
  for _, request in ipairs(requests) do
    local day = day_of(request.id)
    local sum = sums[day] or {tokens = 0, cost = 0}
    sum.tokens, sum.cost = sum.tokens + request.entry.most, sum.cost + request.entry.cost
    sums[day] = sum
  end
  return sums
end

-- Reserves for requests of one caller, in the same buckets.
local function hold(requests, expiry)
  local lives, helds, tokens, entry = {}, {}, 0, requests[1].entry
  for _, request in ipairs(requests) do
    tokens = tokens + request.entry.tokens
    lives[#lives + 1] = expiry
    lives[#lives + 1] = request.id
    helds[#helds + 1] = request.id
    helds[#helds + 1] = packed(request.entry)
  end
  for name in each(entry.names) do take(name, tokens, #requests) end
  redis.call('ZADD', live, unpack(lives))
  redis.call('HSET', held, unpack(helds))
  for day, sum in pairs(most_by_day(requests)) do count(day, entry, sum.tokens, sum.cost, sum.tokens, sum.cost) end
end

-- The ids whose reservations nobody renewed in time.
local function expired() return redis.call('ZRANGEBYSCORE', live, '-inf', now) end

-- Gives back what those have reserved that nobody renewed in time, but for the ids in `spared`.
local function sweep(spared)
  for _, id in ipairs(expired()) do
    if not spared[id] then
      local entry = reservation(id)
      if entry then
        for name in each(entry.names) do take(name, -entry.tokens, -1) end
        count(day_of(id), entry, -entry.most, -entry.cost, -entry.most, -entry.cost)
        redis.call('SET', prefix .. ':expired:' .. id, packed(entry), 'PX', NAMES)
      end
      redis.call('ZREM', live, id)
      redis.call('HDEL', held, id)
    end
  end
end

-- The same for who only reads: what is read from here on is as it will be once they are swept.
local function overlook_expired()
  for _, id in ipairs(expired()) do
    local entry = reservation(id)
    if entry then
      for name in each(entry.names) do take(name, -entry.tokens, -1) end
      suppose_returned(id, entry)
    end
  end
end

-- Replaces a reservation by what was used of the minute and what was billed. Returns whether it was the first time.
-- What was used beyond its reservation is taken all the same: a bucket may be overdrawn by one minute's worth.
local function settle(id, tokens, billed, cost, remember)
  if not redis.call('SET', prefix .. ':settled:' .. id, 1, 'NX', 'PX', remember) then return false end
  local entry, places = reservation(id), -1
  if not entry then
    entry, places = former(id), 0
    entry.tokens, entry.most, entry.cost = 0, 0, 0
  end
  for name in each(entry.names) do
    local found = take(name, tokens - entry.tokens, places)
    if (found.tokens_limit or 0) > 0 then found.tokens = math.min(found.tokens, 2 * found.tokens_limit) end
  end
  if entry.user ~= UNKNOWN then
    count(day_of(id), entry, billed - entry.most, cost - entry.cost, -entry.most, -entry.cost)
  elseif billed ~= 0 or cost ~= 0 then
    forget() -- whose it is, or whether it was counted before, only the ledger knows
  end
  redis.call('ZREM', live, id)
  redis.call('HDEL', held, id)
  redis.call('DEL', prefix .. ':expired:' .. id)
  return true
end

local function save_all()
  save()
  if counting then redis.call('PEXPIRE', counted, COUNTED) end
end
