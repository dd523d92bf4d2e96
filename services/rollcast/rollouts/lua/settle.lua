-- ARGV: ids on :rollouts
for _, id in ipairs(ARGV) do
  local entry = read_entry(ROLLOUTS, id)
  take_off(ROLLOUTS, TRAINER, id)
  if entry and entry.s then
    local words = words_of(redis.call('HGET', INFLIGHT, entry.s))
    if words[1] == 'finished' and words[4] == id then
      redis.call('HDEL', INFLIGHT, entry.s)
    end
  end
end
