-- Makes `claim` the only one that may append to a request's log, and notes the attempt.
-- KEYS[1] log prefix
-- ARGV    claim, attempt, base tokens, time to live (s)
-- returns 1, or 0 when a later attempt has it
return open_log(KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4])
