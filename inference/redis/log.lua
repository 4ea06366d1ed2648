-- What `open_log` and `append` share.

-- Makes `claim` the only one that may append, and notes the attempt; 1, or 0 when a later attempt has the log.
local function open_log(p, claim, attempt, base_tokens, ttl)
  local held = redis.call('HMGET', p .. ':meta', 'claim', 'attempt')
  if held[2] and tonumber(held[2]) > attempt then return 0 end
  redis.call('HSET', p .. ':meta', 'claim', claim, 'attempt', attempt)
  if held[1] ~= claim then
    -- The entry stands behind the tokens that are there, so that readers meet it where the attempts join.
    local last = redis.call('XREVRANGE', p .. ':out', '+', '-', 'COUNT', 1)
    local tokens = last[1] and string.match(last[1][1], '^(%d+)-') or base_tokens
    redis.pcall('XADD', p .. ':out', tokens .. '-' .. attempt, 'a', attempt)
  end
  for _, key in ipairs({':meta', ':out', ':prompt'}) do redis.call('EXPIRE', p .. key, ttl) end
  return 1
end
