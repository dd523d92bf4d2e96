-- Shared by every script: what a stream entry is, who owns it, and how a task moves.
--
-- Fields of an entry: s sequence, a attempt, p purpose, v first version or '-', d protobuf; on :rollouts also
-- o owner and t its entry on the task stream. The attempt stands beside the protobuf so that a script can raise it.
-- XADD comes first in every move: it alone can fail for want of memory, and then nothing has changed.
local TASKS, EVALS, ROLLOUTS, INFLIGHT, DEAD, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local GENERATORS, TRAINER = 'generators', 'trainer'

local function stream_of(purpose)
  return purpose == 'eval' and EVALS or TASKS
end

local function fields_of(row)
  local entry = {}
  for i = 1, #row[2], 2 do
    entry[row[2][i]] = row[2][i + 1]
  end
  return entry
end

local function is_task(entry)
  return entry.s and entry.a and entry.v and entry.d and tonumber(entry.s) and tonumber(entry.a)
    and (entry.p == 'train' or entry.p == 'eval')
end

local function read_entry(stream, id)
  local row = redis.call('XRANGE', stream, id, id)[1]
  return row and fields_of(row)
end

local function words_of(record)
  local words = {}
  for word in string.gmatch(record or '', '%S+') do
    words[#words + 1] = word
  end
  return words
end

local function record(sequence, ...)
  redis.call('HSET', INFLIGHT, sequence, table.concat({...}, ' '))
end

local function owner_of(stream, id)
  local row = redis.call('XPENDING', stream, GENERATORS, id, id, 1)[1]
  return row and row[2]
end

local function take_off(stream, group, id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end

local function claimed(entry, id, version, owner)
  local time = redis.call('TIME')
  local at = time[1] .. '.' .. string.format('%06d', time[2])
  record(entry.s, 'claimed', entry.a, entry.p, id, version, at, owner)
end

local function finished(entry, id)
  record(entry.s, 'finished', entry.a, entry.p, id, entry.v, #entry.d, entry.o, entry.t)
end

local function waiting(entry, id)
  record(entry.s, 'waiting', entry.a, entry.p, id, entry.v)
end

local function enqueue(entry)
  local id = redis.call('XADD', stream_of(entry.p), '*',
    's', entry.s, 'a', entry.a, 'p', entry.p, 'v', entry.v, 'd', entry.d)
  waiting(entry, id)
end

local function bury(entry, reason)
  local id = redis.call('XADD', DEAD, '*', 's', entry.s, 'a', entry.a, 'p', entry.p, 'r', reason, 'd', entry.d)
  record(entry.s, 'dead', entry.a, entry.p, id, reason)
end

local function bury_unreadable(stream, group, id, entry, reason)
  local dead_id = redis.call('XADD', DEAD, '*', 's', entry.s or '', 'a', entry.a or '', 'p', entry.p or '', 'r', reason,
    'd', string.sub(entry.d or '', 1, 65536))
  redis.call('HINCRBY', STATE, 'unreadable', 1)
  take_off(stream, group, id)
  return dead_id
end

local function refuse()
  redis.call('HINCRBY', STATE, 'refused', 1)
  return 0
end

-- Count a failure: the task waits again with attempt + 1, or is dead.
local function redo(stream, id, reason, max_failures, redone, dead)
  local entry = read_entry(stream, id)
  if entry and is_task(entry) then
    entry.a = tostring(tonumber(entry.a) + 1)
    if tonumber(entry.a) < max_failures then
      enqueue(entry)
      redone[#redone + 1] = entry.s
    else
      bury(entry, reason)
      dead[#dead + 1] = entry.s
    end
  end
  take_off(stream, GENERATORS, id)
end

-- The older of a recorded first version ('-' = no token yet) and that of the claimer, who may be a step behind.
local function older(recorded, version)
  if recorded == '-' then
    return version
  end
  local incarnation, step = recorded:match('^(%d+)%.(%d+)$')
  local other_incarnation, other_step = version:match('^(%d+)%.(%d+)$')
  incarnation, step = tonumber(incarnation), tonumber(step)
  other_incarnation, other_step = tonumber(other_incarnation), tonumber(other_step)
  if other_incarnation < incarnation or (other_incarnation == incarnation and other_step < step) then
    return version
  end
  return recorded
end
