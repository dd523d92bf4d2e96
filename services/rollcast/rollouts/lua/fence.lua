-- ARGV: owner, reason, most failures -> {redone, dead}
local owner, redone, dead = ARGV[1], {}, {}
redis.call('HSET', STATE, 'fenced:' .. owner, ARGV[2])
for _, stream in ipairs({EVALS, TASKS}) do
  for _, row in ipairs(redis.call('XPENDING', stream, GENERATORS, '-', '+', 100000, owner)) do
    redo(stream, row[1], ARGV[2], tonumber(ARGV[3]), redone, dead)
  end
  redis.call('XGROUP', 'DELCONSUMER', stream, GENERATORS, owner)
end
return {redone, dead}
