-- ARGV: stream's purpose or 'rollouts', id, reason. An entry whose protobuf nobody can decode is dead, and is a failure
-- of its task: the record says how many there were, and the trainer dispatches the task again until there are too many.
local stream, group = ROLLOUTS, TRAINER
if ARGV[1] ~= 'rollouts' then
  stream, group = stream_of(ARGV[1]), GENERATORS
end
local entry = read_entry(stream, ARGV[2])
if entry then
  local dead_id = bury_unreadable(stream, group, ARGV[2], entry, ARGV[3])
  local words = entry.s and words_of(redis.call('HGET', INFLIGHT, entry.s)) or {}
  if words[4] == ARGV[2] then
    record(entry.s, 'dead', tostring(tonumber(words[2]) + 1), words[3], dead_id, ARGV[3])
  end
else
  redis.call('XACK', stream, group, ARGV[2])
end
