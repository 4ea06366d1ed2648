-- Keeps reservations alive, and tops up those that near their end. Makes again those that are missing (Redis lost its data,
-- or they had expired).
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     time to live (ms), tokens to reserve where one is missing, tokens that one is topped up by, and from how many
--          left on; then for each request: its id, tokens it has used so far (-1: not told, nothing is topped up)
-- returns  {how many were missing, time now (ms), the ids for which there is no more, for each request the tokens that it has
--          reserved now (0: it asks for no more, or is not known)}
--
-- A missing one is made even beyond the limits: it was admitted before. It counts in its buckets where they are known,
-- else in the plan's. One that is settled stays settled. A top-up may overdraw a bucket by one minute's worth, and no
-- reservation grows beyond the most that its request may use. Keys: buckets.lua, counters.lua.
local ttl, tokens, step, near = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function has_room(entry, more)
  for name in each(entry.names) do
    local found = bucket(name)
    if (found.tokens_limit or 0) > 0 and found.tokens + more > 2 * found.tokens_limit then return false end
  end
  return true
end

-- False where a reservation is used up and cannot grow. One that Redis had lost (0 tokens) is settled later, as a whole.
local function top_up(id, used)
  local entry = reservation(id)
  if not entry or entry.tokens == 0 or used + near <= entry.tokens or entry.tokens >= entry.most then return true end
  local more = math.min(math.max(step, used + near - entry.tokens), entry.most - entry.tokens)
  if not has_room(entry, more) then return used < entry.tokens end
  for name in each(entry.names) do take(name, more, 0) end
  entry.tokens = entry.tokens + more
  redis.call('HSET', held, id, packed(entry))
  return true
end

local function reserved(id)
  local entry = reservation(id)
  return entry and entry.tokens < entry.most and entry.tokens or 0
end

local missing, refused, amounts = 0, {}, {}
for at = 5, #ARGV, 2 do
  local id, used = ARGV[at], tonumber(ARGV[at + 1])
  if redis.call('ZADD', live, 'XX', 'GT', 'CH', now + ttl, id) == 1 or redis.call('ZSCORE', live, id) then
    if used >= 0 and not top_up(id, used) then refused[#refused + 1] = id end
  elseif redis.call('EXISTS', prefix .. ':settled:' .. id) == 0 then
    missing = missing + 1
    local entry = former(id)
    entry.tokens = tokens
    hold({{id = id, entry = entry}}, now + ttl)
    redis.call('DEL', prefix .. ':expired:' .. id)
  end
  amounts[#amounts + 1] = used >= 0 and reserved(id) or 0
end
save_all()
return {missing, now, refused, amounts}
