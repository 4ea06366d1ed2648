-- Renews the leases of one runner.
-- KEYS[1] scheduler prefix
-- ARGV    lease (ms), then id, attempt, tokens emitted for each request
-- returns for each request: 'ok', 'cancelled' (renewed, but somebody asked to stop), 'stale' (another attempt has it) or
--         'unknown' (Redis lost it)
local p, now_t = KEYS[1], redis.call('TIME')
local expiry = now_t[1] * 1000 + math.floor(now_t[2] / 1000) + tonumber(ARGV[1])
local answers = {}
for i = 2, #ARGV, 3 do
  local id = ARGV[i]
  local req = p .. ':req:' .. id
  local f = redis.call('HMGET', req, 'state', 'attempt', 'cancelled')
  if not f[1] then
    answers[#answers + 1] = 'unknown'
  elseif f[1] ~= 'running' or f[2] ~= ARGV[i + 1] then
    answers[#answers + 1] = 'stale'
  else
    redis.call('ZADD', p .. ':lease', expiry, id)
    redis.call('HSET', req, 'emitted', ARGV[i + 2])
    answers[#answers + 1] = f[3] and 'cancelled' or 'ok'
  end
end
return answers
