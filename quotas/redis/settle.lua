-- Replaces a request's reservation by what it used, and frees its place. Only the first call counts.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     request id, tokens used, how long to remember that it is settled (ms)
-- returns  {1 if this call counted, time now (ms)}
--
-- What it used beyond its reservation is taken all the same: a bucket may be overdrawn by one minute's worth. A reservation
-- that expired was given back already, so then all that was used is taken. Keys: buckets.lua.
local id, tokens, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local counted = 0
if redis.call('SET', prefix .. ':settled:' .. id, 1, 'NX', 'PX', remember) then
  counted = 1
  local held, names = reservation(id)
  local places = held and -1 or 0
  names = names or redis.call('GET', prefix .. ':expired:' .. id) or 'plan'
  for name in each(names) do
    local found = take(name, tokens - (held or 0), places)
    if (found.tokens_limit or 0) > 0 then found.tokens = math.min(found.tokens, 2 * found.tokens_limit) end
  end
  redis.call('ZREM', live, id)
  redis.call('HDEL', reserved, id)
  redis.call('DEL', prefix .. ':expired:' .. id)
  save()
end
return {counted, now}
