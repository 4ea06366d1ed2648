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

-- Adds to what is taken (settled and reserved) of a request's day, and to what of it is reserved only.
local function count(id, entry, tokens, cost, held_tokens, held_cost)
  for _, counter in ipairs(counters_of(entry)) do
    local taken, kept = counter.tokens and tokens or cost, counter.tokens and held_tokens or held_cost
    if taken ~= 0 then
      local day = day_of(id)
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

-- What is taken of a counter in the period of a day: its calendar month (days 0), or so many days up to it.
-- Returns the sum, then what is taken of each day of the period, oldest first, and its first day.
local function taken_in(name, days, day)
  local first = days == 0 and month_of(day) or day - days + 1
  local last = days == 0 and month_of(first + 31) - 1 or day + 1 -- one more: ids may be older than the clock, by little
  local fields, sum = {}, 0
  for at = first, last do fields[#fields + 1] = name .. ' ' .. at end
  local amounts = redis.call('HMGET', counted, unpack(fields))
  for at = 1, #amounts do
    amounts[at] = tonumber(amounts[at] or 0)
    sum = sum + amounts[at]
  end
  if days > 0 then
    local next_day = table.remove(amounts)
    sum = math.max(sum - next_day, sum - amounts[1])
  end
  return sum, amounts, first
end

local function hold(id, entry, expiry)
  for name in each(entry.names) do take(name, entry.tokens, 1) end
  redis.call('ZADD', live, expiry, id)
  redis.call('HSET', held, id, packed(entry))
  count(id, entry, entry.most, entry.cost, entry.most, entry.cost)
end

-- Gives back what those have reserved that nobody renewed in time, but for the ids in `spared`.
local function sweep(spared)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', now)) do
    if not spared[id] then
      local entry = reservation(id)
      if entry then
        for name in each(entry.names) do take(name, -entry.tokens, -1) end
        count(id, entry, -entry.most, -entry.cost, -entry.most, -entry.cost)
        redis.call('SET', prefix .. ':expired:' .. id, packed(entry), 'PX', NAMES)
      end
      redis.call('ZREM', live, id)
      redis.call('HDEL', held, id)
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
    count(id, entry, billed - entry.most, cost - entry.cost, -entry.most, -entry.cost)
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
