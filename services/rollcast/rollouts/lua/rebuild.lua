-- :inflight is an index: each of its records says where a task's entry is. Every script keeps both in step, and here the
-- index is checked against the streams (by counts) and made anew from them where somebody deleted or lost part of it.

local PAGE = 16 -- entries at once: a group can be megabytes

local function num_pending(stream)
  return redis.call('XPENDING', stream, GENERATORS)[1]
end

local function index_is_true()
  local counts = {waiting = 0, claimed = 0, finished = 0, dead = 0}
  for _, text in ipairs(redis.call('HVALS', INFLIGHT)) do
    local state = string.match(text, '^%a+')
    if not counts[state] then
      return false
    end
    counts[state] = counts[state] + 1
  end
  return redis.call('XLEN', TASKS) + redis.call('XLEN', EVALS) == counts.waiting + counts.claimed
    and num_pending(TASKS) + num_pending(EVALS) == counts.claimed
    and redis.call('XLEN', ROLLOUTS) == counts.finished
end

local function ids_of(stream)
  local ids, from = {}, '-'
  while true do
    local rows = redis.call('XRANGE', stream, from, '+', 'COUNT', PAGE)
    for _, row in ipairs(rows) do
      ids[#ids + 1] = row[1]
    end
    if #rows < PAGE then
      return ids
    end
    from = '(' .. rows[#rows][1]
  end
end

local function owners_of(stream)
  local owners, from = {}, '-'
  while true do
    local rows = redis.call('XPENDING', stream, GENERATORS, from, '+', PAGE)
    for _, row in ipairs(rows) do
      owners[row[1]] = row[2]
    end
    if #rows < PAGE then
      return owners
    end
    from = '(' .. rows[#rows][1]
  end
end

local function last_delivered(stream)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = fields_of({false, group})
    if info.name == GENERATORS then
      return info['last-delivered-id']
    end
  end
end

local function not_after(id, other)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  ms, number, other_ms, other_number = tonumber(ms), tonumber(number), tonumber(other_ms), tonumber(other_number)
  return ms < other_ms or (ms == other_ms and number <= other_number)
end

local function rebuild_rollouts(before, seen)
  for _, id in ipairs(ids_of(ROLLOUTS)) do
    local entry = read_entry(ROLLOUTS, id)
    if not is_group(entry) then
      bury_unreadable(ROLLOUTS, TRAINER, id, entry, NOT_A_GROUP)
    elseif seen[entry.s] or is_elsewhere(words_of(before[entry.s]), entry.s, id) then
      bury_unreadable(ROLLOUTS, TRAINER, id, entry, ELSEWHERE)
    else
      seen[entry.s] = true
      finished(entry, id)
    end
  end
end

local function rebuild_tasks(stream, before, seen)
  local owners, delivered = owners_of(stream), last_delivered(stream)
  for _, id in ipairs(ids_of(stream)) do
    local entry = read_entry(stream, id)
    local owner, old = owners[id], words_of(before[entry and entry.s or ''])
    owners[id] = nil
    if not entry then -- `enqueue` gave it a new id, under which the next call finds it
      redis.call('XACK', stream, GENERATORS, id)
    elseif not is_task(entry) or stream_of(entry.p) ~= stream then
      bury_unreadable(stream, GENERATORS, id, entry, NOT_A_TASK)
    elseif seen[entry.s] or is_elsewhere(old, entry.s, id) then
      bury_unreadable(stream, GENERATORS, id, entry, ELSEWHERE)
    elseif owner and old[1] == 'claimed' and old[4] == id then
      seen[entry.s] = true
      redis.call('HSET', INFLIGHT, entry.s, before[entry.s])
    elseif owner or not_after(id, delivered) then
      -- Claimed without a record of the first version, or delivered to nobody: it has to be claimed anew.
      seen[entry.s] = true
      enqueue(entry)
      take_off(stream, GENERATORS, id)
    else
      seen[entry.s] = true
      waiting(entry, id)
    end
  end
  for id in pairs(owners) do
    redis.call('XACK', stream, GENERATORS, id)
  end
end

local function ensure_index()
  if index_is_true() then
    return
  end
  local flat, before, seen = redis.call('HGETALL', INFLIGHT), {}, {}
  for i = 1, #flat, 2 do
    before[flat[i]] = flat[i + 1]
  end
  count('rebuilt')
  redis.call('DEL', INFLIGHT)
  rebuild_rollouts(before, seen)
  rebuild_tasks(TASKS, before, seen)
  rebuild_tasks(EVALS, before, seen)
  for sequence, text in pairs(before) do
    local state = words_of(text)[1]
    if not (state and is_count(sequence, 15)) then
      bury_record(sequence, text)
    elseif state == 'dead' and not seen[sequence] then
      redis.call('HSET', INFLIGHT, sequence, text)
    end
  end
end
