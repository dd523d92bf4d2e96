-- ARGV: newest entries of :dead -> {:inflight, {purpose, entry, idle milliseconds of a claim}, {id, s, a, p, r of a dead entry}}
-- Changes nothing: a run that is not there gets no stream.
local claims, dead = {}, {}
for purpose, stream in pairs({eval = EVALS, train = TASKS}) do
  local rows = redis.pcall('XPENDING', stream, GENERATORS, '-', '+', 100000)
  for _, row in ipairs(rows.err and {} or rows) do
    claims[#claims + 1] = {purpose, row[1], row[3]}
  end
end
for _, row in ipairs(redis.call('XREVRANGE', DEAD, '+', '-', 'COUNT', ARGV[1])) do
  local entry = fields_of(row)
  dead[#dead + 1] = {row[1], cut(entry.s, 64), cut(entry.a, 64), cut(entry.p, 64), cut(entry.r, 4096)}
end
return {redis.call('HGETALL', INFLIGHT), claims, dead}
