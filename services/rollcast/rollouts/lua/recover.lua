-- ARGV: owner, first version, then 'purpose id' of each task it knows it owns
-- -> the entries whose replies it never got; no token was sampled for them, so their first version is the present one
local owner, first_version, known, found = ARGV[1], ARGV[2], {}, {}
for i = 3, #ARGV do
  known[ARGV[i]] = true
end
for purpose, stream in pairs({eval = EVALS, train = TASKS}) do
  for _, row in ipairs(redis.call('XPENDING', stream, GENERATORS, '-', '+', 100000, owner)) do
    local id = row[1]
    local entry = not known[purpose .. ' ' .. id] and read_entry(stream, id)
    if entry and not (is_task(entry) and entry.p == purpose) then
      bury_unreadable(stream, GENERATORS, id, entry, NOT_A_TASK)
    elseif entry then
      local version = older(entry.v, first_version)
      claimed(entry, id, version, owner)
      found[#found + 1] = {id, entry.s, entry.a, entry.p, version, entry.d}
    end
  end
end
return found
