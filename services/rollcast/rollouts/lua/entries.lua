-- Shared by every script: what a stream entry is, who owns it, and how a task moves.
--
-- Fields of an entry: s sequence, a attempt, p purpose, v first version or '-', d protobuf; on :rollouts also
-- o owner and t its entry on the task stream. The attempt stands beside the protobuf so that a script can raise it.
-- `append` comes first in every move: it alone can fail for want of memory, and then nothing has changed.
local TASKS, EVALS, ROLLOUTS, INFLIGHT, DEAD, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local GENERATORS, TRAINER = 'generators', 'trainer'
local NOT_A_TASK, NOT_A_GROUP = 'not a prompt task', 'not a rollout group'
local ELSEWHERE = 'another entry has its task'

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

-- What others wrote into a stream or into :inflight is believed only in the form in which these scripts write it.
local function is_count(text, digits)
  return text and #text <= digits and (text == '0' or string.match(text, '^[1-9]%d*$') ~= nil)
end

-- One more in a counter of :state. What is no number there counts as 0.
local function count(name)
  local text = redis.call('HGET', STATE, name)
  if text and not is_count(text, 15) then
    redis.call('HDEL', STATE, name)
  end
  redis.call('HINCRBY', STATE, name, 1)
end

local function is_version(text)
  local incarnation, step = string.match(text or '', '^(%d+)%.(%d+)$')
  return is_count(incarnation, 9) and is_count(step, 9)
end

local function is_id(text)
  for _, part in ipairs({string.match(text or '', '^(%d+)%-(%d+)$')}) do
    if #part > 20 or (#part == 20 and part > '18446744073709551615') then
      return false
    end
  end
  return string.match(text or '', '^%d+%-%d+$') ~= nil
end

local function is_purpose(text)
  return text == 'train' or text == 'eval'
end

local function is_task(entry)
  return is_count(entry.s, 15) and is_count(entry.a, 9) and is_purpose(entry.p)
    and (entry.v == '-' or is_version(entry.v)) and entry.d
end

local function is_group(entry)
  return is_task(entry) and entry.v ~= '-' and is_id(entry.t)
    and entry.o and #entry.o <= 512 and string.match(entry.o, '^[^%s%c]+$')
end

local function cut(text, length)
  return string.sub(text or '', 1, length)
end

local function read_entry(stream, id)
  local row = redis.call('XRANGE', stream, id, id)[1]
  return row and fields_of(row)
end

-- The words of a record; none where it is missing or damaged. What follows the first four is `index.py`'s to read.
local STATES = {waiting = true, claimed = true, finished = true, dead = true}
local function words_of(text)
  local words = {}
  for word in string.gmatch(text or '', '%S+') do
    words[#words + 1] = word
  end
  local whole = STATES[words[1] or ''] and is_count(words[2], 9) and is_purpose(words[3]) and is_id(words[4])
  return whole and words or {}
end

-- Whether a task's record names another entry than this one, and that one is there: then this one is nobody's.
local function is_elsewhere(words, sequence, id)
  if not words[4] or words[4] == id or words[1] == 'dead' then
    return false
  end
  local other = read_entry(words[1] == 'finished' and ROLLOUTS or stream_of(words[3]), words[4])
  return other and other.s == sequence
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
  local id = append(stream_of(entry.p), '*',
    's', entry.s, 'a', entry.a, 'p', entry.p, 'v', entry.v, 'd', entry.d)
  waiting(entry, id)
end

-- The newest are kept: a program that writes nothing else but garbage must not fill the memory with it.
local function to_dead(entry, reason)
  return append(DEAD, 'MAXLEN', '~', 1000, '*', 's', cut(entry.s, 64), 'a', cut(entry.a, 64),
    'p', cut(entry.p, 64), 'r', cut(reason, 4096), 'd', cut(entry.d, 65536))
end

local function bury(entry, reason)
  local id = to_dead(entry, reason)
  record(entry.s, 'dead', entry.a, entry.p, id, reason)
end

local function bury_unreadable(stream, group, id, entry, reason)
  local dead_id = to_dead(entry, reason)
  count('unreadable')
  take_off(stream, group, id)
  return dead_id
end

local function bury_record(sequence, text)
  to_dead({s = sequence, d = text}, 'a record of :inflight that cannot be read')
  count('unreadable')
  redis.call('HDEL', INFLIGHT, sequence)
end

local function refuse()
  count('refused')
  return 0
end

-- Take a group off the queue for good.
local function remove(id, entry)
  take_off(ROLLOUTS, TRAINER, id)
  local words = entry and words_of(redis.call('HGET', INFLIGHT, entry.s or '')) or {}
  if words[1] == 'finished' and words[4] == id then
    redis.call('HDEL', INFLIGHT, entry.s)
  end
end

-- Count a failure: the task waits again with attempt + 1, or is dead.
local function redo(stream, id, reason, max_failures, redone, dead)
  local entry = read_entry(stream, id)
  if entry and not is_task(entry) then
    bury_unreadable(stream, GENERATORS, id, entry, NOT_A_TASK)
  elseif entry then
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
