-- Appends text to a request's log, only for the claim that holds it.
-- KEYS[1] log prefix
-- ARGV    claim, entry id `<tokens emitted>-<n>`, first character's position, text, token ids (packed), and where
--         they were asked for the tokens' log probabilities (JSON, '' none);
--         for the first entry of an attempt that has not opened the log yet: attempt, base tokens, time to live (s)
-- returns 1 appended, 2 was there already, 0 another claim holds the log, -1 Redis has lost the log
local p = KEYS[1]
if ARGV[7] and open_log(p, ARGV[1], tonumber(ARGV[7]), ARGV[8], ARGV[9]) == 0 then return 0 end
local claim = redis.call('HGET', p .. ':meta', 'claim')
if not claim then return -1 end
if claim ~= ARGV[1] then return 0 end
local fields = {'c', ARGV[3], 't', ARGV[4], 'i', ARGV[5]}
if ARGV[6] and ARGV[6] ~= '' then
  fields[7], fields[8] = 'l', ARGV[6]
end
local added = redis.pcall('XADD', p .. ':out', ARGV[2], unpack(fields))
if type(added) == 'table' and added.err then
  if string.find(added.err, 'equal or smaller') then return 2 end
  return added
end
return 1
