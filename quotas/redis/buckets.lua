-- What the scripts of this folder share: it stands ahead of each of them.
--
-- KEYS[1]  v1:{o:<organization>}
--
-- A bucket is one set of limits: the plan's, a member's, an API key's. A request counts against each bucket that it was
-- reserved in. Keys, all under the prefix:
--   :bucket:<name>  HASH  tokens, requests (what is taken; both drain by their limit per minute), running (replies now),
--                         at (ms of the last change), tokens_limit, requests_limit (0: there is none)
--   :live           ZSET  request id -> ms at which its reservation expires
--   :held           HASH  request id -> what is reserved: tokens of the minute; the most tokens and the most cost that it
--                         may be billed for; user and API key (- none, ? not known any more); names of its buckets
--   :expired:<id>   the same of a reservation that has expired, should its request turn up after all
--   :settled:<id>   kept for a while, so that what comes late counts nothing twice
-- Budgets, with keys of their own: counters.lua.
local IDLE = 180000      -- ms that a bucket lives when nothing runs in it: an overdrawn one is full again after two minutes
local KEEP = 172800000   -- ms that the rest lives: longer than a reply runs
local NAMES = 3600000    -- ms that the buckets of an expired reservation are known
local UNKNOWN = '?'
local prefix = KEYS[1]
local live, held = prefix .. ':live', prefix .. ':held'
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local buckets = {}

local function drained(used, limit, elapsed)
  if not limit then return used end -- not known: Redis lost it, and nobody has told it since
  if limit == 0 then return 0 end
  return math.max(0, math.min(used, 2 * limit) - elapsed * limit / 60000)
end

-- The bucket as it is now; its limits as told, else as they were told last.
local function bucket(name, tokens_limit, requests_limit)
  local found = buckets[name]
  if found then return found end
  local state = redis.call('HMGET', prefix .. ':bucket:' .. name,
    'tokens', 'requests', 'running', 'at', 'tokens_limit', 'requests_limit')
  local elapsed = math.max(0, now - tonumber(state[4] or now))
  found = {
    running = tonumber(state[3] or 0),
    tokens_limit = tokens_limit or tonumber(state[5] or ''),
    requests_limit = requests_limit or tonumber(state[6] or ''),
  }
  found.tokens = drained(tonumber(state[1] or 0), found.tokens_limit, elapsed)
  found.requests = drained(tonumber(state[2] or 0), found.requests_limit, elapsed)
  buckets[name] = found
  return found
end

-- Takes tokens (or gives back, below zero) and places in a bucket.
local function take(name, tokens, places)
  local found = bucket(name)
  if found.tokens_limit ~= 0 then found.tokens = math.max(0, found.tokens + tokens) end
  found.running = math.max(0, found.running + places)
  found.changed = true
  return found
end

local function each(names) return string.gmatch(names, '%S+') end

local function packed(entry)
  return string.format('%d %d %d %s %s %s', entry.tokens, entry.most, entry.cost, entry.user, entry.key, entry.names)
end

local function unpacked(text)
  local tokens, most, cost, user, key, names = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) ?(.*)$')
  return {
    tokens = tonumber(tokens), most = tonumber(most), cost = tonumber(cost), user = user, key = key, names = names,
  }
end

-- What a request has reserved; nil where there is nothing.
local function reservation(id)
  local text = redis.call('HGET', held, id)
  return text and unpacked(text) or nil
end

-- What is known of a request whose reservation is gone: what it had, given back by now.
local function former(id)
  local text = redis.call('GET', prefix .. ':expired:' .. id)
  if text then return unpacked(text) end
  return {tokens = 0, most = 0, cost = 0, user = UNKNOWN, key = UNKNOWN, names = 'plan'}
end

-- What says who runs has to outlive the buckets that count them.
local function save()
  local runs = false
  for name, found in pairs(buckets) do
    if found.changed then
      local key = prefix .. ':bucket:' .. name
      redis.call('HSET', key, 'tokens', string.format('%.6f', found.tokens),
        'requests', string.format('%.6f', found.requests), 'running', found.running, 'at', now,
        'tokens_limit', found.tokens_limit or '', 'requests_limit', found.requests_limit or '')
      redis.call('PEXPIRE', key, found.running > 0 and KEEP or IDLE)
      runs = runs or found.running > 0
    end
  end
  if runs then
    redis.call('PEXPIRE', live, KEEP + IDLE)
    redis.call('PEXPIRE', held, KEEP + IDLE)
  end
end
