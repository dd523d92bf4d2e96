-- ARGV: requeue | bury, sequence, idle milliseconds from which a claim is taken, most failures, reason
-- -> {state found, owner, idle milliseconds, 1 done | 0 refused}. A requeue is no failure: the attempt stays.
local action, sequence, reason = ARGV[1], ARGV[2], ARGV[5]
local words = words_of(redis.call('HGET', INFLIGHT, sequence))
local state, id = words[1], words[4]
if state == 'dead' and action == 'requeue' then
  redis.call('HDEL', INFLIGHT, sequence) -- the trainer dispatches again what it has not settled and finds nowhere
  return {state, '', 0, 1}
elseif state ~= 'claimed' and not (state == 'waiting' and action == 'bury') then
  return {state or 'absent', '', 0, 0}
end
local stream = stream_of(words[3])
local claim = redis.call('XPENDING', stream, GENERATORS, id, id, 1)[1]
local entry = read_entry(stream, id)
if not (entry and is_task(entry) and entry.s == sequence) or (state == 'claimed' and not claim) then
  return {'damaged', '', 0, 0}
end
claim = claim or {id, '', 0}
if state == 'claimed' and claim[3] < tonumber(ARGV[3]) then
  return {state, claim[2], claim[3], 0}
elseif action == 'requeue' then
  enqueue(entry)
else
  entry.a = tostring(math.max(tonumber(entry.a), tonumber(ARGV[4]))) -- with fewer the trainer would dispatch it again
  bury(entry, reason)
end
take_off(stream, GENERATORS, id)
return {state, claim[2], claim[3], 1}
