-- Makes `claim` the only one that may append to a request's log, and notes the attempt.
-- KEYS[1] log prefix
-- ARGV    claim, attempt, base tokens, time to live (s)
-- returns 1, or 0 when a later attempt has it
local p = KEYS[1]
local attempt = tonumber(ARGV[2])
local held = redis.call('HMGET', p .. ':meta', 'claim', 'attempt')
if held[2] and tonumber(held[2]) > attempt then return 0 end
redis.call('HSET', p .. ':meta', 'claim', ARGV[1], 'attempt', attempt)
if held[1] ~= ARGV[1] then
  -- The entry stands behind the tokens that are there, so that readers meet it where the attempts join.
  local last = redis.call('XREVRANGE', p .. ':out', '+', '-', 'COUNT', 1)
  local tokens = last[1] and string.match(last[1][1], '^(%d+)-') or ARGV[3]
  redis.pcall('XADD', p .. ':out', tokens .. '-' .. attempt, 'a', attempt)
end
for _, key in ipairs({':meta', ':out', ':prompt'}) do redis.call('EXPIRE', p .. key, ARGV[4]) end
return 1
