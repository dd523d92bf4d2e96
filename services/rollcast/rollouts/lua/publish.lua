-- ARGV: owner, purpose, id, sequence, attempt, first version, protobuf -> 1 published, 0 refused
local stream, id = stream_of(ARGV[2]), ARGV[3]
local entry = {p = ARGV[2], s = ARGV[4], a = ARGV[5], v = ARGV[6], d = ARGV[7], o = ARGV[1], t = id}
if owner_of(stream, id) ~= entry.o then
  local words = words_of(redis.call('HGET', INFLIGHT, entry.s))
  local repeated = words[1] == 'finished' and words[7] == entry.o and words[8] == id
  return repeated and 1 or refuse()
end
-- The task's own entry says which task it is and how often it failed, not whoever publishes.
local task = read_entry(stream, id)
if task and is_task(task) then
  if task.s ~= entry.s then
    return refuse()
  end
  entry.a = task.a
end
local group_id = append(ROLLOUTS, '*',
  's', entry.s, 'a', entry.a, 'p', entry.p, 'v', entry.v, 'o', entry.o, 't', id, 'd', entry.d)
finished(entry, group_id)
take_off(stream, GENERATORS, id)
return 1
