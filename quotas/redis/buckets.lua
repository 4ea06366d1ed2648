-- What the scripts of this folder share: it stands ahead of each of them.
--
-- KEYS[1]  v1:{o:<organization>}
--
-- A bucket is one set of limits: the plan's, an API key's. A request counts against each bucket that it was reserved in.
-- Keys, all under the prefix:
--   :bucket:<name>  HASH  tokens, requests (what is taken; both drain by their limit per minute), running (replies now),
--                         at (ms of the last change), tokens_limit, requests_limit (0: there is none)
--   :live           ZSET  request id -> ms at which its reservation expires
--   :reserved       HASH  request id -> tokens reserved, and the names of its buckets
--   :expired:<id>   names of the buckets of a reservation that has expired, should its request turn up after all
--   :settled:<id>   kept for a while, so that what comes late counts nothing twice
local IDLE = 180000      -- ms that a bucket lives when nothing runs in it: an overdrawn one is full again after two minutes
local KEEP = 172800000   -- ms that the rest lives: longer than a reply runs
local NAMES = 3600000    -- ms that the buckets of an expired reservation are known
local prefix = KEYS[1]
local live, reserved = prefix .. ':live', prefix .. ':reserved'
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

-- Tokens and bucket names of a reservation; nil where there is none.
local function reservation(id)
  local entry = redis.call('HGET', reserved, id)
  if not entry then return nil end
  local tokens, rest = string.match(entry, '^(%S+) ?(.*)$')
  return tonumber(tokens), rest
end

local function each(names) return string.gmatch(names, '%S+') end

local function hold(id, tokens, names, expiry)
  for name in each(names) do take(name, tokens, 1) end
  redis.call('ZADD', live, expiry, id)
  redis.call('HSET', reserved, id, tokens .. ' ' .. names)
end

-- Gives back what those have reserved that nobody renewed in time, but for the ids in `spared`.
local function sweep(spared)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', now)) do
    if not spared[id] then
      local tokens, names = reservation(id)
      for name in each(names or '') do take(name, -tokens, -1) end
      redis.call('SET', prefix .. ':expired:' .. id, names or 'plan', 'PX', NAMES)
      redis.call('ZREM', live, id)
      redis.call('HDEL', reserved, id)
    end
  end
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
    redis.call('PEXPIRE', reserved, KEEP + IDLE)
  end
end
