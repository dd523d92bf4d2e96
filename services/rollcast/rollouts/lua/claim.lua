-- ARGV: owner, evals, train, first version
-- -> {reason why the owner is fenced or false, claimed entries, number pending under this owner, where to wait}
local owner, first_version = ARGV[1], ARGV[4]
local fenced = redis.call('HGET', STATE, 'fenced:' .. owner)
if fenced then
  return {fenced, {}, 0, {}}
end
local taken, num_pending, delivered = {}, 0, {}
for i, stream in ipairs({EVALS, TASKS}) do
  local count = tonumber(ARGV[i + 1])
  if count > 0 then
    local reply = redis.call('XREADGROUP', 'GROUP', GENERATORS, owner, 'COUNT', count, 'STREAMS', stream, '>')
    for _, row in ipairs(reply and reply[1][2] or {}) do
      local id, entry = row[1], fields_of(row)
      if not is_task(entry) or stream_of(entry.p) ~= stream then
        bury_unreadable(stream, GENERATORS, id, entry, NOT_A_TASK)
      elseif is_elsewhere(words_of(redis.call('HGET', INFLIGHT, entry.s)), entry.s, id) then
        bury_unreadable(stream, GENERATORS, id, entry, ELSEWHERE)
      else
        local version = older(entry.v, first_version)
        claimed(entry, id, version, owner)
        taken[#taken + 1] = {id, entry.s, entry.a, entry.p, version, entry.d}
      end
    end
  end
  for _, consumer in ipairs(redis.call('XPENDING', stream, GENERATORS)[4] or {}) do
    if consumer[1] == owner then
      num_pending = num_pending + tonumber(consumer[2])
    end
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = fields_of({false, group})
    if info.name == GENERATORS then
      delivered[i] = info['last-delivered-id']
    end
  end
end
return {false, taken, num_pending, delivered}
