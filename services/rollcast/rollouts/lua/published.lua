-- ARGV: (id, sequence) of each entry read from :rollouts -> the ids of those that an owner published; the others are
-- buried. publish.lua alone writes a group and, in the same moment, the record that names it.
local published = {}
for i = 1, #ARGV, 2 do
  local id, words = ARGV[i], words_of(redis.call('HGET', INFLIGHT, ARGV[i + 1]))
  local is_named = words[1] == 'finished' and words[4] == id
  local entry = not is_named and read_entry(ROLLOUTS, id)
  if entry and not is_group(entry) then
    bury_unreadable(ROLLOUTS, TRAINER, id, entry, NOT_A_GROUP)
  elseif entry and is_elsewhere(words, entry.s, id) then
    bury_unreadable(ROLLOUTS, TRAINER, id, entry, ELSEWHERE)
  elseif entry then
    finished(entry, id) -- its record was lost
    is_named = true
  end
  if is_named then
    published[#published + 1] = id
  end
end
return published
