-- Adds to a stream, whatever ids others wrote into it. An entry under the last possible id ends a stream, even after it
-- was deleted: no id is left for the next. XSETID takes that back, but newer servers refuse it below a deleted id. So
-- the stream is made anew: entries ahead of the clock get new ids, the others keep theirs and their owners.

local MOST_WORDS = 64 -- names and values of an entry; ours have fewer, and Lua passes no more than some thousand

local function is_ahead(id)
  return tonumber(string.match(id, '^%d+')) / 1000 > tonumber(redis.call('TIME')[1]) + 1
end

-- A list of {name, last delivered id, {id -> its row of XPENDING}} of a stream's groups.
local function groups_of(stream)
  local groups = {}
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group, pending = {}, {}
    for i = 1, #info, 2 do
      group[info[i]] = info[i + 1]
    end
    for _, row in ipairs(redis.call('XPENDING', stream, group.name, '-', '+', 100000)) do
      pending[row[1]] = row
    end
    groups[#groups + 1] = {name = group.name, delivered = group['last-delivered-id'], pending = pending}
  end
  return groups
end

local function renumber(stream)
  local old, groups, last_kept, kept = stream .. ':exhausted', groups_of(stream), '0-0', {}
  redis.call('RENAME', stream, old)
  while true do
    local row = redis.call('XRANGE', old, '-', '+', 'COUNT', 1)[1]
    if not row then
      break
    end
    redis.call('XDEL', old, row[1])
    local fields = {unpack(row[2], 1, math.min(#row[2], MOST_WORDS))}
    if is_ahead(row[1]) then
      redis.call('XADD', stream, '*', unpack(fields))
    else
      last_kept = redis.call('XADD', stream, row[1], unpack(fields))
      kept[#kept + 1] = last_kept
    end
  end
  redis.call('DEL', old)
  for _, group in ipairs(groups) do
    local delivered = is_ahead(group.delivered) and last_kept or group.delivered
    redis.call('XGROUP', 'CREATE', stream, group.name, delivered, 'MKSTREAM')
    for _, id in ipairs(kept) do
      local row = group.pending[id]
      if row then
        redis.call('XCLAIM', stream, group.name, row[2], 0, id, 'IDLE', row[3], 'RETRYCOUNT', row[4], 'FORCE', 'JUSTID')
      end
    end
  end
end

-- XADD; after the stream's name come its arguments. Returns the id.
local function append(stream, ...)
  local reply = redis.pcall('XADD', stream, ...)
  if type(reply) == 'table' and string.find(reply.err, 'exhausted', 1, true) then
    renumber(stream)
  elseif type(reply) ~= 'table' then
    return reply
  end
  return redis.call('XADD', stream, ...)
end
