-- ARGV: idle milliseconds, reason, most failures -> {redone, dead}
local redone, dead = {}, {}
for _, stream in ipairs({EVALS, TASKS}) do
  for _, row in ipairs(redis.call('XPENDING', stream, GENERATORS, 'IDLE', ARGV[1], '-', '+', 100000)) do
    redo(stream, row[1], ARGV[2], tonumber(ARGV[3]), redone, dead)
  end
end
return {redone, dead}
