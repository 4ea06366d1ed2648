-- Replaces a request's reservation by what it used, and frees its place. Only the first call counts.
--
-- KEYS[1]  v1:{o:<organization>}
-- ARGV     request id, tokens used (of the minute), tokens billed, cost billed (1e-10), how long to remember that it is
--          settled (ms)
-- returns  {1 if this call counted, 0 if an earlier one did, -1: counters are being read, come again; time now (ms)}
--
-- A reservation that expired was given back already, so then all that was used is taken. Keys: buckets.lua, counters.lua.
local id, tokens, billed, cost, remember = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

if (billed ~= 0 or cost ~= 0) and redis.call('EXISTS', loading) == 1 then return {-1, now} end
local counts = settle(id, tokens, billed, cost, remember)
if counts then save_all() end
return {counts and 1 or 0, now}
