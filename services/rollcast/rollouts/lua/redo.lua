-- ARGV: reason, most failures, sequences... -> {redone, dead}
local redone, dead = {}, {}
for i = 3, #ARGV do
  local words = words_of(redis.call('HGET', INFLIGHT, ARGV[i]))
  if words[1] == 'claimed' then
    redo(stream_of(words[3]), words[4], ARGV[1], tonumber(ARGV[2]), redone, dead)
  end
end
return {redone, dead}
